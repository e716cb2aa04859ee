use std::{env, fs, path::PathBuf};

use serde_json::{Value, json};

use crate::{Node, Outcome};

/// The configuration of a pod for `crictl runp`.
#[derive(Debug)]
pub struct PodSpec(pub Value);

/// The configuration of a container for `crictl create`.
#[derive(Debug)]
pub struct ContainerSpec(pub Value);

impl PodSpec {
    /// Returns a pod with this name. Its containers have PID namespaces of their own, as the kubelet requests by
    /// default.
    pub fn named(node: &Node, name: &str) -> Self {
        Self(json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "attempt": 0},
            "log_directory": node.logs().join(name),
            "linux": {"security_context": {"namespace_options": {"pid": 1}}},
        }))
    }
}

impl ContainerSpec {
    /// Returns a container that runs this command.
    pub fn new(name: &str, image: &str, command: &[&str]) -> Self {
        Self(json!({
            "metadata": {"name": name, "attempt": 0},
            "image": {"image": image},
            "command": command,
            "log_path": format!("{name}.log"),
            "linux": {"security_context": {"namespace_options": {"pid": 1}}},
        }))
    }
}

impl Node {
    /// Runs `crictl` against this node's daemon.
    pub fn crictl(&self, args: &[&str]) -> Outcome {
        let crictl = PathBuf::from(env::var_os("CRICTL").expect("CRICTL names the crictl program: run `make test`"));
        let mut command = self.command(crictl);
        command.args(["--config", "/dev/null", "--timeout", "20s"]);
        command.args([
            "--runtime-endpoint",
            "unix:///run/pinion/pinion.sock",
            "--image-endpoint",
            "unix:///run/pinion/pinion.sock",
        ]);
        Outcome::of(command.args(args))
    }

    /// Writes a spec to a file for `crictl`.
    pub fn file(&self, name: &str, value: &Value) -> String {
        let path = self.dir.path().join(name);
        fs::write(&path, serde_json::to_vec_pretty(value).expect("JSON")).expect("a spec file");
        path.to_str().expect("UTF-8").to_owned()
    }

    /// Runs `crictl runp` and returns the id of the pod.
    #[track_caller]
    pub fn run_pod(&self, pod: &PodSpec) -> String {
        let file = self.pod_file(pod);
        self.crictl(&["runp", &file]).ok()
    }

    /// Runs `crictl create` and `crictl start`, and returns the id of the container.
    #[track_caller]
    pub fn run_container(&self, pod_id: &str, pod: &PodSpec, container: &ContainerSpec) -> String {
        let id = self.create_container(pod_id, pod, container).ok();
        self.crictl(&["start", &id]).ok();
        id
    }

    /// Runs `crictl create`.
    pub fn create_container(&self, pod_id: &str, pod: &PodSpec, container: &ContainerSpec) -> Outcome {
        let name = container.0["metadata"]["name"].as_str().unwrap_or("container");
        let file = self.file(&format!("{pod_id}-{name}.json"), &container.0);
        let pod_file = self.pod_file(pod);
        self.crictl(&["create", "--no-pull", pod_id, &file, &pod_file])
    }

    /// Stops and removes every pod.
    pub fn remove_all_pods(&self) {
        self.crictl(&["rmp", "--all", "--force"]).ok();
    }

    fn pod_file(&self, pod: &PodSpec) -> String {
        let name = pod.0["metadata"]["name"].as_str().unwrap_or("pod").to_owned();
        self.file(&format!("pod-{name}.json"), &pod.0)
    }
}
