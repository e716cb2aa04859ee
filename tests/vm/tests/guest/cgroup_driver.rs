//! The daemon's cgroup driver `systemd`: units of pods and containers, with a pid 1 that is reloaded and executed again.

mod leftovers;

use std::{fs, path::PathBuf, process::Command, thread, time::Duration};

use serde_json::{Value, json};
use testbed::wait_until;

use crate::node::{Node, ok};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn systemctl(arguments: &[&str]) -> String {
    ok(Command::new("systemctl").args(arguments).output().expect("systemctl runs"))
}

/// Returns a property of a unit. The call fails while systemd is executed again, which other tests request.
pub(crate) fn property(unit: &str, name: &str) -> String {
    let show =
        || Command::new("systemctl").args(["show", "--value", "-p", name, unit]).output().expect("systemctl runs");
    let mut output = show();
    wait_until("systemd answers", TIMEOUT, || {
        output.status.success() || {
            output = show();
            output.status.success()
        }
    });
    ok(output)
}

pub(crate) fn wait_for_unit(unit: &str, name: &str, value: &str) {
    let what = format!("{name} of {unit} is {value}");
    wait_until(&what, TIMEOUT, || property(unit, name) == value);
}

pub(crate) fn start(name: &str, number: u8) -> Node {
    Node::start_with(name, number, "[cgroup]\ndriver = \"systemd\"\n")
}

pub(crate) fn pod(node: &Node, name: &str, parent: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "namespace": "d"},
        "log_directory": node.directory(),
        "linux": {"cgroup_parent": parent, "security_context": {"namespace_options": {"network": 2, "pid": 1}}},
    })
}

pub(crate) fn container(script: &str, resources: &Value) -> Value {
    json!({
        "metadata": {"name": "c"},
        "image": {"image": "demo:1"},
        "command": ["sh", "-c", script],
        "log_path": "c.log",
        "linux": {"resources": resources, "security_context": {"namespace_options": {"network": 2, "pid": 1}}},
    })
}

/// A pod with a running container.
pub(crate) struct Running {
    pub(crate) pod: String,
    pub(crate) id: String,
    pub(crate) unit: String,
    directory: PathBuf,
}

impl Running {
    pub(crate) fn start(node: &Node, pod: &Value, container: &Value) -> Self {
        let pod_file = node.file("pod.json", pod);
        let sandbox = ok(node.crictl(&["runp", &pod_file]));
        let file = node.file("container.json", container);
        let id = ok(node.crictl(&["create", &sandbox, &file, &pod_file]));
        ok(node.crictl(&["start", &id]));
        let inspect: Value = serde_json::from_str(&ok(node.crictl(&["inspect", &id]))).expect("JSON");
        let path = inspect["info"]["cgroup"].as_str().expect("the path of its cgroup").to_owned();
        let directory = PathBuf::from(format!("/sys/fs/cgroup{path}"));
        Self { pod: sandbox, unit: format!("pinion-{id}.scope"), id, directory }
    }

    /// Reads a file of its cgroup.
    pub(crate) fn file(&self, name: &str) -> String {
        let path = self.directory.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim().to_owned()
    }

    /// Checks the limits in the kernel, in systemd, or in both.
    #[track_caller]
    fn assert_limits(&self, memory: u64) {
        assert_eq!(self.file("memory.max"), memory.to_string());
        assert_eq!(self.file("cpu.max"), "50000 100000");
        assert_eq!(self.file("pids.max"), "max");
        assert_ne!(self.file("cgroup.procs"), "");
    }

    /// Removes the pod, and checks that nothing of it is left in systemd and in the kernel.
    pub(crate) fn remove(self, node: &Node) {
        ok(node.crictl(&["rmp", "-f", &self.pod]));
        for unit in [self.unit, format!("pinion-{}.scope", self.pod)] {
            wait_for_unit(&unit, "LoadState", "not-found");
        }
        assert!(!self.directory.exists());
    }
}

#[test]
fn pods_of_every_class_have_units_that_keep_their_limits() {
    let node = start("classes", 4);
    let resources = json!({"memory_limit_in_bytes": 64 * MIB, "cpu_quota": 50_000, "cpu_period": 100_000});
    for slice in ["kubepods-pod1.slice", "kubepods-burstable-pod2.slice", "kubepods-besteffort-pod3.slice"] {
        let running = Running::start(&node, &pod(&node, "p", slice), &container("sleep 1000", &resources));
        running.assert_limits(64 * MIB);
        wait_for_unit(&running.unit, "ActiveState", "active");
        let group = running.directory.to_str().and_then(|path| path.strip_prefix("/sys/fs/cgroup")).expect("a path");
        for (name, value) in [
            ("Slice", slice),
            ("ControlGroup", group),
            ("Delegate", "yes"),
            ("MemoryMax", "67108864"),
            ("TasksMax", "infinity"),
        ] {
            assert_eq!(property(&running.unit, name), value, "{name}");
        }
        wait_for_unit(&running.unit, "CPUQuotaPerSecUSec", "500ms");
        systemctl(&["daemon-reload"]);
        running.assert_limits(64 * MIB);
        ok(node.crictl(&["update", "--memory", &(96 * MIB).to_string(), &running.id]));
        assert_eq!(running.file("memory.max"), (96 * MIB).to_string());
        wait_for_unit(&running.unit, "MemoryMax", "100663296");
        systemctl(&["daemon-reexec"]);
        systemctl(&["daemon-reload"]);
        running.assert_limits(96 * MIB);
        assert_eq!(ok(node.crictl(&["exec", "-s", &running.id, "echo", "alive"])), "alive");
        running.remove(&node);
        systemctl(&["stop", slice]);
    }
}

#[test]
fn a_pod_without_a_parent_has_a_slice_of_its_own() {
    let node = start("alone", 5);
    let mut config = pod(&node, "p", "");
    config["linux"]["resources"] = json!({"memory_limit_in_bytes": 128 * MIB});
    let running = Running::start(&node, &config, &container("sleep 1000", &json!({})));
    let slice = format!("alone-pod{}.slice", running.pod);
    assert!(running.directory.ends_with(format!("alone.slice/{slice}/{}", running.unit)), "{:?}", running.directory);
    wait_for_unit(&running.unit, "ActiveState", "active");
    wait_for_unit(&slice, "MemoryMax", "134217728");
    systemctl(&["daemon-reload"]);
    let parent = running.directory.parent().expect("a parent").to_owned();
    assert_eq!(fs::read_to_string(parent.join("memory.max")).expect("a limit").trim(), "134217728");
    running.remove(&node);
    wait_for_unit(&slice, "LoadState", "not-found");
    assert!(!parent.exists());
}

#[test]
fn a_daemon_finds_units_that_an_earlier_one_did_not_register_or_stop() {
    let mut node = start("earlier", 6);
    let slice = "kubepods-pod4.slice";
    let running = Running::start(&node, &pod(&node, "p", slice), &container("sleep 1000", &json!({})));
    wait_for_unit(&running.unit, "ActiveState", "active");
    // A unit of this engine without an object: its description names the state directory.
    let leftover = format!("pinion-{}.scope", "0".repeat(64));
    let run = ["--scope", "--description", &format!("Pinion in {}", node.state()), "--unit", &leftover, "sleep", "2"];
    let mut scope = Command::new("systemd-run").args(run).spawn().expect("systemd-run");
    wait_for_unit(&leftover, "ActiveState", "active");
    node.kill();
    node.restart();
    thread::sleep(Duration::from_secs(1));
    assert_eq!(property(&running.unit, "ActiveState"), "active");
    assert!(scope.wait().expect("the scope ends").success(), "a unit with a process is not stopped");
    running.remove(&node);
    systemctl(&["stop", slice]);
}

#[test]
fn a_container_ends_when_systemd_kills_or_stops_its_scope() {
    let node = start("ended", 2);
    let slice = "kubepods-pod9.slice";
    let script = "trap 'exit 3' TERM; while true; do sleep 0.1; done";
    for arguments in [&["kill", "--signal=TERM"][..], &["stop"]] {
        let running = Running::start(&node, &pod(&node, "p", slice), &container(script, &json!({})));
        wait_for_unit(&running.unit, "ActiveState", "active");
        systemctl(&[arguments, &[&running.unit]].concat());
        let status = || -> Value {
            let inspect = ok(node.crictl(&["inspect", &running.id]));
            serde_json::from_str::<Value>(&inspect).expect("JSON")["status"].take()
        };
        wait_until("the container exited", TIMEOUT, || status()["state"] == "CONTAINER_EXITED");
        assert_eq!((&status()["exitCode"], &status()["reason"]), (&json!(3), &json!("Error")), "{arguments:?}");
        running.remove(&node);
    }
    systemctl(&["stop", slice]);
}

#[test]
fn a_parent_of_the_other_driver_is_refused() {
    let node = start("refused", 8);
    let file = node.file("pod.json", &pod(&node, "p", "/kubepods/pod6"));
    let refused = node.crictl(&["runp", &file]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && error.contains("cgroupDriver: systemd") && error.contains("[cgroup]"),
        "{error}"
    );
    for parent in ["/kubepods.slice/a@b.slice", "a--b.slice", "a b.slice", "-.slice"] {
        let file = node.file("pod.json", &pod(&node, "p", parent));
        let refused = node.crictl(&["runp", &file]);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(error.contains("InvalidArgument") && error.contains("config.linux.cgroup_parent"), "{parent}: {error}");
    }
}
