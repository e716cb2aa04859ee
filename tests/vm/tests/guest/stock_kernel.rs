//! Pods on Debian's kernel, which is older than that of the other tests, so that fallbacks for older kernels are
//! tested. Runs in a separate process, like `labelled_pod`.

use std::{
    fs,
    net::TcpStream,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::node::{Node, ok};

fn pod(node: &Node, name: &str, context: Value) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "namespace": "d"},
        "log_directory": node.directory(),
        "linux": {"security_context": context},
    })
}

/// Runs a container in a new pod, and returns the ids of both.
fn run(node: &Node, pod: &Value, container: &Value) -> (String, String) {
    let pod_file = node.file("pod.json", pod);
    let sandbox = ok(node.crictl(&["runp", &pod_file]));
    let file = node.file("container.json", container);
    let id = ok(node.crictl(&["create", &sandbox, &file, &pod_file]));
    ok(node.crictl(&["start", &id]));
    (sandbox, id)
}

fn inside(node: &Node, id: &str, script: &str) -> String {
    ok(node.crictl(&["exec", "-s", id, "sh", "-c", script]))
}

/// The nodes of the other tests of this module, which run at the same time.
const OTHER_NODES: [&str; 3] = ["users", "layers", "codes"];

/// Returns all mounts except those of other nodes, which change concurrently.
fn mounts() -> Vec<String> {
    let is_of_another = |line: &str| {
        OTHER_NODES
            .iter()
            .any(|name| ["/run", "/var/tmp"].iter().any(|directory| line.contains(&format!("{directory}/{name}"))))
    };
    let all = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    all.lines().filter(|line| !is_of_another(line)).map(str::to_owned).collect()
}

/// Waits until the server of a container listens, which may be later than the start of the container.
fn wait_for_listener(address: &str) {
    let start = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(start.elapsed() < Duration::from_secs(30), "nothing listens on {address}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn page(address: &str) -> String {
    ok(Command::new("busybox").args(["wget", "-q", "-O", "-", &format!("http://{address}/")]).output().expect("wget"))
}

const PAGE: &str = "hello from a pod without a pause";

#[test]
fn a_pod_survives_the_kill_of_daemon_and_monitor() {
    let mut node = Node::start("stock", 1);
    let before = mounts();
    let container = json!({
        "metadata": {"name": "web"},
        "image": {"image": "demo:1"},
        "command": ["sh", "-c", "echo begun; httpd -p 80 -h /www; trap 'exit 7' TERM; while :; do sleep 0.1; done"],
        "log_path": "web.log",
        "mounts": [{"container_path": "/tools", "image": {"image": "demo:1"}, "readonly": true}],
        "linux": {"resources": {"memory_limit_in_bytes": 64 << 20, "cpu_quota": 50_000, "cpu_period": 100_000}},
    });
    let mut config = pod(&node, "web", json!({}));
    config["port_mappings"] = json!([{"container_port": 80, "host_port": 8099}]);
    let (sandbox, id) = run(&node, &config, &container);
    let inspect: Value = serde_json::from_str(&ok(node.crictl(&["inspectp", &sandbox]))).expect("JSON");
    let address = inspect["status"]["network"]["ip"].as_str().expect("an address").to_owned();
    let gateway = format!("{}.1:8099", address.rsplit_once('.').expect("four parts").0);
    wait_for_listener(&format!("{address}:80"));
    assert_eq!((page(&address), page(&gateway)), (PAGE.to_owned(), PAGE.to_owned()));
    assert_eq!(inside(&node, &id, "cat /tools/www/index.html"), PAGE);
    assert_eq!(ok(node.crictl(&["logs", &id])), "begun");
    assert!(ok(node.crictl(&["stats", "-o", "json"])).contains(&id));

    node.kill_monitor();
    while !node.crictl(&["exec", "-s", &id, "true"]).status.success() {
        thread::sleep(Duration::from_millis(100));
    }
    ok(node.crictl(&["stop", "-t", "30", &id]));
    let inspect: Value = serde_json::from_str(&ok(node.crictl(&["inspect", &id]))).expect("JSON");
    assert_eq!(inspect["status"]["exitCode"], 7, "{inspect}");

    let pod_file = node.file("pod.json", &config);
    let file = node.file("container.json", &json!({
        "metadata": {"name": "next"}, "image": {"image": "demo:1"}, "command": ["httpd", "-f", "-p", "80", "-h", "/www"], "log_path": "next.log",
    }));
    let id = ok(node.crictl(&["create", &sandbox, &file, &pod_file]));
    ok(node.crictl(&["start", &id]));
    wait_for_listener(&format!("{address}:80"));
    node.kill();
    assert_eq!(page(&address), PAGE);
    node.restart();
    assert_eq!(inside(&node, &id, "echo alive"), "alive");
    ok(node.crictl(&["rmp", "-f", &sandbox]));
    for _ in 0..100 {
        if mounts() == before {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("before: {before:?}, now: {:?}", mounts());
}

#[test]
fn a_pod_with_a_user_namespace() {
    let node = Node::start("users", 2);
    let maps = json!([{"host_id": 655_360, "container_id": 0, "length": 65_536}]);
    let context = json!({"namespace_options": {"userns_options": {"mode": 0, "uids": maps, "gids": maps}}});
    let container = json!({
        "metadata": {"name": "c"},
        "image": {"image": "demo:1"},
        "command": ["sleep", "1000"],
        "log_path": "users.log",
        "linux": {"security_context": context},
    });
    let (_, id) = run(&node, &pod(&node, "users", context), &container);
    assert_eq!(inside(&node, &id, "id -u; stat -c %u /bin/sh; touch /mine && stat -c %u /mine"), "0\n0\n0");
    assert!(inside(&node, &id, "cat /proc/self/uid_map").contains("655360"));
    assert!(!Path::new("/mine").exists());
}

#[test]
fn an_image_with_many_layers() {
    let node = Node::start("layers", 3);
    ok(node.pinion(&["load", "-i", "/suite/layers.tar"]));
    let container = json!({
        "metadata": {"name": "c"},
        "image": {"image": "layers:1"},
        "command": ["sleep", "1000"],
        "log_path": "layers.log",
    });
    let (_, id) = run(&node, &pod(&node, "layers", json!({})), &container);
    assert_eq!(inside(&node, &id, "cat /layer-* | wc -l"), "40");
}

/// Before Linux 6.15 only the parent can get the exit code of a process. After the monitor was killed, that is the
/// daemon.
#[test]
fn exit_codes_are_known_after_the_monitor_was_killed() {
    let node = Node::start("codes", 4);
    let config = pod(&node, "codes", json!({}));
    let pod_file = node.file("pod.json", &config);
    let sandbox = ok(node.crictl(&["runp", &pod_file]));
    let start =
        |code: u8| {
            let file = node.file("container.json", &json!({
            "metadata": {"name": format!("c{code}")},
            "image": {"image": "demo:1"},
            "command": ["sh", "-c", format!("trap 'exit {code}' TERM; echo begun; while :; do sleep 0.1; done")],
            "log_path": format!("{code}.log"),
        }));
            let id = ok(node.crictl(&["create", &sandbox, &file, &pod_file]));
            ok(node.crictl(&["start", &id]));
            while ok(node.crictl(&["logs", &id])) != "begun" {
                thread::sleep(Duration::from_millis(50));
            }
            id
        };
    let ids: Vec<String> = (1..=8).map(start).collect();
    node.kill_monitor();
    while !node.crictl(&["exec", "-s", &ids[0], "true"]).status.success() {
        thread::sleep(Duration::from_millis(100));
    }
    let stop: Vec<&str> = ["stop", "-t", "30"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    ok(node.crictl(&stop));
    let code = |id: &String| {
        let inspect: Value = serde_json::from_str(&ok(node.crictl(&["inspect", id]))).expect("JSON");
        inspect["status"]["exitCode"].as_u64()
    };
    assert_eq!(ids.iter().map(code).collect::<Vec<_>>(), (1..=8).map(Some).collect::<Vec<_>>());
}
