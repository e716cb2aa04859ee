//! Pods on the kernel that Debian ships: older than what the other tests run on, so that its ways of doing things are
//! tried. In a run of its own, as `labelled_pod`.

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

/// A container that runs.
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

/// The nodes of the other tests here, which run at the same time.
const OTHER_NODES: [&str; 3] = ["users", "layers", "codes"];

/// All mounts but those of other nodes, which come and go.
fn mounts() -> Vec<String> {
    let is_of_another = |line: &str| {
        OTHER_NODES.iter().any(|name| ["/run", "/var/tmp"].iter().any(|at| line.contains(&format!("{at}/{name}"))))
    };
    let all = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    all.lines().filter(|line| !is_of_another(line)).map(str::to_owned).collect()
}

/// Until something listens: a container runs before its server does.
fn served(at: &str) {
    let begin = Instant::now();
    while TcpStream::connect(at).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(30), "nothing listens at {at}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn page(at: &str) -> String {
    ok(Command::new("busybox").args(["wget", "-q", "-O", "-", &format!("http://{at}/")]).output().expect("wget"))
}

const PAGE: &str = "hello from a pod without a pause";

#[test]
fn a_pod_lives_and_what_keeps_it_may_die() {
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
    let told: Value = serde_json::from_str(&ok(node.crictl(&["inspectp", &sandbox]))).expect("JSON");
    let address = told["status"]["network"]["ip"].as_str().expect("an address").to_owned();
    let gateway = format!("{}.1:8099", address.rsplit_once('.').expect("four parts").0);
    served(&format!("{address}:80"));
    assert_eq!((page(&address), page(&gateway)), (PAGE.to_owned(), PAGE.to_owned()));
    assert_eq!(inside(&node, &id, "cat /tools/www/index.html"), PAGE);
    assert_eq!(ok(node.crictl(&["logs", &id])), "begun");
    assert!(ok(node.crictl(&["stats", "-o", "json"])).contains(&id));

    node.kill_monitor();
    while !node.crictl(&["exec", "-s", &id, "true"]).status.success() {
        thread::sleep(Duration::from_millis(100));
    }
    ok(node.crictl(&["stop", "-t", "30", &id]));
    let told: Value = serde_json::from_str(&ok(node.crictl(&["inspect", &id]))).expect("JSON");
    assert_eq!(told["status"]["exitCode"], 7, "{told}");

    let pod_file = node.file("pod.json", &config);
    let file = node.file("container.json", &json!({
        "metadata": {"name": "next"}, "image": {"image": "demo:1"}, "command": ["httpd", "-f", "-p", "80", "-h", "/www"], "log_path": "next.log",
    }));
    let id = ok(node.crictl(&["create", &sandbox, &file, &pod_file]));
    ok(node.crictl(&["start", &id]));
    served(&format!("{address}:80"));
    node.kill();
    assert_eq!(page(&address), PAGE);
    node.again();
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
fn a_pod_has_users_of_its_own() {
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
fn an_image_of_many_layers_is_shown() {
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

/// Before Linux 6.15 only its parent hears how a process ended, and after the monitor's death that is the daemon.
#[test]
fn exit_codes_are_known_after_the_monitors_death() {
    let node = Node::start("codes", 4);
    let config = pod(&node, "codes", json!({}));
    let pod_file = node.file("pod.json", &config);
    let sandbox = ok(node.crictl(&["runp", &pod_file]));
    let begin =
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
    let ids: Vec<String> = (1..=8).map(begin).collect();
    node.kill_monitor();
    while !node.crictl(&["exec", "-s", &ids[0], "true"]).status.success() {
        thread::sleep(Duration::from_millis(100));
    }
    let stop: Vec<&str> = ["stop", "-t", "30"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    ok(node.crictl(&stop));
    let code = |id: &String| {
        let told: Value = serde_json::from_str(&ok(node.crictl(&["inspect", id]))).expect("JSON");
        told["status"]["exitCode"].as_u64()
    };
    assert_eq!(ids.iter().map(code).collect::<Vec<_>>(), (1..=8).map(Some).collect::<Vec<_>>());
}
