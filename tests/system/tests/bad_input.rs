//! Invalid input is refused with an error that names the object, and nothing is left behind.

use std::fs;

use serde_json::json;
use system_tests::{ContainerSpec, Node, Options, PodSpec, Registry};

#[track_caller]
fn assert_names(error: &str, objects: &[&str]) {
    for object in objects {
        assert!(error.contains(object), "the error does not name {object:?}: {error}");
    }
}

/// Checks that nothing but the pod itself exists after a failed creation.
fn assert_only_pods(node: &Node) {
    assert_eq!(node.crictl(&["ps", "-a", "-q"]).ok(), "");
    assert_eq!(node.run("sh", &["-c", "ls -A /run/pinion/container"]).stdout.trim(), "");
    let snapshots = node.run("sh", &["-c", &format!("ls -A {}/data/snapshots 2>/dev/null", node.dir.path().display())]);
    assert_eq!(snapshots.stdout.trim(), "", "leaked writable layers");
    assert!(node.processes().iter().all(|process| process.name.starts_with("pin")), "{:?}", node.processes());
}

#[test]
fn an_invalid_configuration_is_reported_with_file_line_and_key() {
    let node = Node::new(Options::default());
    let config = node.config();
    let path = config.to_str().unwrap();
    fs::write(&config, "data_dir = \"/var/lib/pinion\"\n[network]\nbrigde = \"x\"\n").unwrap();
    assert_names(&node.pinion(&["serve", "--config", path]).error(), &[path, "brigde", "3"]);
    fs::write(&config, "data_dir = \n").unwrap();
    assert_names(&node.pinion(&["serve", "--config", path]).error(), &[path, "1"]);
    fs::write(&config, "[network]\nsubnet = \"10.300.0.0/16\"\n").unwrap();
    assert_names(&node.pinion(&["serve", "--config", path]).error(), &["subnet", "10.300.0.0/16"]);
    assert_eq!(
        node.run("sh", &["-c", "ls -A /run"]).stdout.trim(),
        "",
        "a daemon that failed to start left something behind"
    );
}

#[test]
fn images_that_cannot_be_pulled() {
    let node = Node::start();
    let mut registry = Registry::start(&node);
    assert_names(&node.crictl(&["pull", "127.0.0.1:5000/nope:1"]).error(), &["127.0.0.1:5000/nope:1", "not found"]);
    assert_names(
        &node.crictl(&["pull", "127.0.0.1:5000/demo:none"]).error(),
        &["127.0.0.1:5000/demo:none", "not found"],
    );
    assert_names(&node.crictl(&["pull", "127.0.0.1:5000/UPPER:1"]).error(), &["127.0.0.1:5000/UPPER:1"]);

    let layer = fs::read_dir(registry.layout.join("blobs/sha256"))
        .unwrap()
        .flatten()
        .max_by_key(|entry| entry.metadata().unwrap().len());
    let digest = layer.unwrap().file_name().into_string().unwrap();
    let data = registry.blob(&node, &digest);
    let mut bytes = fs::read(&data).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&data, &bytes).unwrap();
    assert_names(&node.crictl(&["pull", "127.0.0.1:5000/demo:1"]).error(), &[&digest]);
    assert_eq!(node.crictl(&["images", "-q"]).ok(), "", "a corrupt image is listed");

    registry.stop(&node);
    assert_names(&node.crictl(&["pull", "127.0.0.1:5000/demo:1"]).error(), &["127.0.0.1:5000", "refused"]);
    node.end();
}

#[test]
fn containers_that_cannot_be_created() {
    let node = Node::start();
    node.load_image();
    let pod = PodSpec::named(&node, "bad");
    let pod_id = node.run_pod(&pod);

    let missing = ContainerSpec::new("missing", "demo:1", &["no-such-program", "-x"]);
    let id = node.create_container(&pod_id, &pod, &missing);
    let error = if id.code == Some(0) { node.crictl(&["start", id.stdout.trim()]).error() } else { id.error() };
    assert_names(&error, &["no-such-program", "not found"]);
    node.crictl(&["rm", "-a", "-f"]);
    assert_only_pods(&node);

    let mut bind = ContainerSpec::new("bind", "demo:1", &["true"]);
    bind.0["mounts"] = json!([{"host_path": "/proc/no/such", "container_path": "/data"}]);
    assert_names(&node.create_container(&pod_id, &pod, &bind).error(), &["/proc/no/such", "cannot be created"]);
    assert_only_pods(&node);

    let mut capability = ContainerSpec::new("capability", "demo:1", &["true"]);
    capability.0["linux"] = json!({"security_context": {"namespace_options": {"pid": 1}, "capabilities": {"add_capabilities": ["NOT_A_CAPABILITY"]}}});
    assert_names(&node.create_container(&pod_id, &pod, &capability).error(), &["NOT_A_CAPABILITY"]);
    assert_only_pods(&node);

    let mut user = ContainerSpec::new("user", "demo:1", &["true"]);
    user.0["linux"] = json!({"security_context": {"namespace_options": {"pid": 1}, "run_as_username": "nobody-knows"}});
    assert_names(&node.create_container(&pod_id, &pod, &user).error(), &["nobody-knows"]);
    assert_only_pods(&node);

    let image = ContainerSpec::new("image", "not-pulled:1", &["true"]);
    assert_names(&node.create_container(&pod_id, &pod, &image).error(), &["not-pulled:1"]);
    assert_only_pods(&node);
    node.remove_all_pods();
    node.end();
}

#[test]
fn a_cni_configuration_that_is_not_json() {
    let cni = vec![("10-broken.conflist".to_owned(), "{\"cniVersion\": \"1.0.0\",\n  \"name\": broken\n".to_owned())];
    let node = Node::with(Options { cni, ..Options::default() });
    let file = node.file("pod.json", &PodSpec::named(&node, "nonet").0);
    assert_names(&node.crictl(&["runp", &file]).error(), &["10-broken.conflist", "2"]);
    let info = node.crictl(&["info"]).json();
    let network =
        info["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "NetworkReady").unwrap().clone();
    assert_eq!(network["status"], false, "{network}");
    assert_names(network["message"].as_str().unwrap(), &["10-broken.conflist"]);
    assert_eq!(node.crictl(&["pods", "-q"]).ok(), "");
    node.end();
}

#[test]
fn without_a_daemon_the_error_explains_how_to_start_one() {
    let node = Node::new(Options::default());
    assert_names(&node.pinion(&["ps"]).error(), &["/run/pinion/pinion.sock", "pinion serve"]);
}
