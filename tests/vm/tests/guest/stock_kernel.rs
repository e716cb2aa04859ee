//! Pods on the kernel that Debian ships: older than what the other tests run on, so that its ways of doing things are tried.
//! In a run of its own, as `labelled_pod`.

use std::{fs, path::Path, process::Command, thread, time::Duration};

use serde_json::{Value, json};

use crate::node::{Node, ok};

fn pod(node: &Node, name: &str, context: Value) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "namespace": "d"},
        "log_directory": node.folder(),
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

#[test]
fn a_pod_lives_and_its_daemon_may_die() {
    let mut node = Node::start("stock");
    let mounts = || fs::read_to_string("/proc/self/mountinfo").expect("mounts").lines().count();
    let before = mounts();
    let container = json!({
        "metadata": {"name": "web"},
        "image": {"image": "demo:1"},
        "command": ["httpd", "-f", "-p", "80", "-h", "/www"],
        "log_path": "web.log",
        "mounts": [{"container_path": "/tools", "image": {"image": "demo:1"}, "readonly": true}],
        "linux": {"resources": {"memory_limit_in_bytes": 64 << 20, "cpu_quota": 50_000, "cpu_period": 100_000}},
    });
    let (sandbox, id) = run(&node, &pod(&node, "web", json!({})), &container);
    let told: Value = serde_json::from_str(&ok(node.crictl(&["inspectp", &sandbox]))).expect("JSON");
    let address = told["status"]["network"]["ip"].as_str().expect("an address").to_owned();
    let page = || {
        ok(Command::new("busybox")
            .args(["wget", "-q", "-O", "-", &format!("http://{address}/")])
            .output()
            .expect("wget"))
    };
    assert_eq!(page(), "hello from a pod without a pause");
    assert_eq!(inside(&node, &id, "cat /tools/www/index.html"), "hello from a pod without a pause");
    node.kill();
    assert_eq!(page(), "hello from a pod without a pause");
    node.again();
    assert_eq!(inside(&node, &id, "echo alive"), "alive");
    ok(node.crictl(&["stop", &id]));
    ok(node.crictl(&["rmp", "-f", &sandbox]));
    for _ in 0..100 {
        if mounts() == before {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("left: {}", fs::read_to_string("/proc/self/mountinfo").expect("mounts"));
}

#[test]
fn a_pod_has_users_of_its_own() {
    let node = Node::start("users");
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
    let node = Node::start("layers");
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
