//! A real kubelet with the systemd cgroup driver, which it reads from the daemon: static pods of all QoS classes.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command},
    time::Duration,
};

use serde_json::{Value, json};
use testbed::wait_until;

use crate::node::{Node, ok};

const TIMEOUT: Duration = Duration::from_secs(180);
const PROGRAM: &str = "/suite/kubelet";
const READ_ONLY_PORT: u16 = 10_255;
/// The metrics of cAdvisor that the container of a pod must have.
const METRICS: [&str; 2] = ["container_memory_working_set_bytes", "container_cpu_usage_seconds_total"];

/// A running kubelet, which is stopped when this is dropped.
struct Kubelet {
    process: Child,
    manifests: PathBuf,
}

fn run(program: &str, arguments: &[&str]) -> String {
    ok(Command::new(program).args(arguments).output().expect("the program runs"))
}

/// Gives the node an address and a default route, which a kubelet requires.
fn set_up_network() {
    // The kubelet copies it for pods on the node's network.
    fs::write("/etc/hosts", "127.0.0.1 localhost\n192.0.2.2 node\n").expect("written");
    for arguments in [
        "link add uplink0 type veth peer name uplink1",
        "addr add 192.0.2.2/24 dev uplink0",
        "link set uplink0 up",
        "link set uplink1 up",
        "route add default via 192.0.2.1",
    ] {
        run("ip", &arguments.split(' ').collect::<Vec<_>>());
    }
}

impl Kubelet {
    fn start(node: &Node) -> Self {
        let work = node.directory().join("kubelet");
        let manifests = work.join("manifests");
        fs::create_dir_all(&manifests).expect("a directory");
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": format!("unix://{}/socket", node.directory().display()),
            "staticPodPath": manifests,
            "podLogsDir": work.join("logs"),
            "failSwapOn": false,
            "registerNode": false,
            "readOnlyPort": READ_ONLY_PORT,
            "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
            "enforceNodeAllocatable": ["pods"],
            "cgroupsPerQOS": true,
            "fileCheckFrequency": "1s",
            "syncFrequency": "5s",
            "evictionHard": {"memory.available": "10Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        });
        let file = work.join("config.json");
        fs::write(&file, config.to_string()).expect("written");
        let log = fs::File::create("/run/kubelet.log").expect("a log");
        let process = Command::new(PROGRAM)
            .arg("--config")
            .arg(file)
            .arg("--root-dir")
            .arg(work.join("root"))
            .arg("--cert-dir")
            .arg(work.join("pki"))
            .args(["--hostname-override", "node", "--node-ip", "192.0.2.2", "--v=2"])
            .stderr(log)
            .spawn()
            .expect("start the kubelet");
        Self { process, manifests }
    }

    /// Starts a pod; `resources` are those of its container.
    fn add(&self, name: &str, resources: &Value) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "hostNetwork": true, "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "image": "docker.io/library/demo:1", "imagePullPolicy": "Never",
                    "command": ["sh", "-c", "sleep 10000"], "resources": resources}],
            },
        });
        fs::write(self.manifests.join(format!("{name}.json")), pod.to_string()).expect("written");
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let log = fs::read_to_string("/run/kubelet.log").unwrap_or_default();
        let lines: Vec<_> = log.lines().filter(|line| line.starts_with('E') || line.starts_with('F')).collect();
        println!("errors of the kubelet:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"));
    }
}

/// Returns the id and the cgroup of the running container of a pod.
fn container_of(node: &Node, pod: &str) -> Option<(String, String)> {
    let label = format!("io.kubernetes.pod.name={pod}-node");
    let id = ok(node.crictl(&["ps", "-q", "--state", "running", "--label", &label]));
    let inspect: Value = serde_json::from_str(&ok(node.crictl(&["inspect", id.lines().next()?]))).ok()?;
    Some((id, inspect["info"]["cgroup"].as_str()?.to_owned()))
}

fn read(group: &str, file: &str) -> String {
    let path = format!("/sys/fs/cgroup{group}/{file}");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}")).trim().to_owned()
}

#[test]
fn pods_of_all_classes_are_limited_and_removed() {
    set_up_network();
    let mut node = Node::start_with("kubelet", 9, "[cgroup]\ndriver = \"auto\"\n");
    let kubelet = Kubelet::start(&node);
    let limits = json!({"cpu": "100m", "memory": "64Mi"});
    kubelet.add("guaranteed", &json!({"limits": limits, "requests": limits}));
    kubelet.add("burstable", &json!({"limits": {"memory": "80Mi"}, "requests": {"memory": "40Mi", "cpu": "50m"}}));
    kubelet.add("besteffort", &json!({}));
    let classes = [
        ("guaranteed", "/kubepods.slice/kubepods-pod", "67108864"),
        ("burstable", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod", "83886080"),
        ("besteffort", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod", "max"),
    ];
    let mut running = Vec::new();
    for (name, parent, memory) in classes {
        wait_until(&format!("{name} runs"), TIMEOUT, || container_of(&node, name).is_some());
        let (id, group) = container_of(&node, name).expect("it runs");
        let unit = format!("pinion-{id}.scope");
        assert!(group.starts_with(parent) && group.ends_with(&unit), "{group}");
        assert_eq!(read(&group, "memory.max"), memory);
        let active = || run("systemctl", &["show", "--value", "-p", "ActiveState", &unit]) == "active";
        wait_until(&format!("systemd knows {unit}"), TIMEOUT, active);
        running.push((id, group, unit, memory));
    }
    run("systemctl", &["daemon-reexec"]);
    run("systemctl", &["daemon-reload"]);
    for (_, group, _, memory) in &running {
        assert_eq!(&read(group, "memory.max"), memory);
    }
    // The request with which the kubelet resizes a container. A static pod cannot be resized through the kubelet.
    let (id, group, ..) = &running[1];
    ok(node.crictl(&["update", "--memory", "75497472", id]));
    assert_eq!(read(group, "memory.max"), "75497472");
    run("systemctl", &["daemon-reload"]);
    assert_eq!(read(group, "memory.max"), "75497472");
    // A changed manifest replaces the pod.
    let (old, ..) = running.remove(1);
    kubelet.add("burstable", &json!({"limits": {"memory": "88Mi"}, "requests": {"memory": "40Mi", "cpu": "50m"}}));
    let replaced = || container_of(&node, "burstable").filter(|(id, _)| *id != old);
    wait_until("burstable was replaced", TIMEOUT, || replaced().is_some());
    let (id, group) = replaced().expect("it runs");
    assert_eq!(read(&group, "memory.max"), "92274688");
    let unit = format!("pinion-{id}.scope");
    running.push((id, group, unit, "92274688"));
    for (name, ..) in classes {
        fs::remove_file(kubelet.manifests.join(format!("{name}.json"))).expect("removed");
    }
    for (_, group, unit, _) in &running {
        let is_gone = || {
            let pod = group.rsplit_once('/').map_or("", |(pod, _)| pod);
            run("systemctl", &["show", "--value", "-p", "LoadState", unit]) == "not-found"
                && !PathBuf::from(format!("/sys/fs/cgroup{pod}")).exists()
        };
        wait_until(&format!("{unit} and its pod are gone"), TIMEOUT, is_gone);
    }
    drop(kubelet);
    cadvisor_measures_scopes(&mut node);
}

/// With the socket for cAdvisor, the kubelet has metrics of a container in a scope.
fn cadvisor_measures_scopes(node: &mut Node) {
    node.restart_with("[cgroup]\ndriver = \"systemd\"\n[cadvisor]\nsocket = \"/run/crio/crio.sock\"\n");
    let kubelet = Kubelet::start(node);
    kubelet.add("measured", &json!({"limits": {"memory": "64Mi"}}));
    wait_until("measured runs", TIMEOUT, || container_of(node, "measured").is_some());
    let (id, group) = container_of(node, "measured").expect("it runs");
    let unit = format!("crio-pinion-{id}.scope");
    assert!(group.ends_with(&unit), "{group}");
    wait_until("systemd knows the scope", TIMEOUT, || {
        run("systemctl", &["show", "--value", "-p", "ActiveState", &unit]) == "active"
    });
    let is_of_container = |line: &&str| line.contains("container=\"c\"") && line.contains("pod=\"measured-node\"");
    let mut missing = Vec::new();
    wait_until("cAdvisor measures the container", TIMEOUT, || {
        let page = metrics().unwrap_or_default();
        let lines: Vec<_> = page.lines().filter(is_of_container).filter(|line| line.contains(&unit)).collect();
        missing = METRICS.into_iter().filter(|name| !lines.iter().any(|line| line.starts_with(name))).collect();
        missing.is_empty()
    });
    fs::remove_file(kubelet.manifests.join("measured.json")).expect("removed");
    wait_until("measured is gone", TIMEOUT, || !PathBuf::from(format!("/sys/fs/cgroup{group}")).exists());
}

/// Reads what cAdvisor measures from the kubelet.
fn metrics() -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", READ_ONLY_PORT))?;
    stream.write_all(b"GET /metrics/cadvisor HTTP/1.0\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}
