//! The crictl commands that operators use, in the order of a pod's life cycle.

use serde_json::Value;
use system_tests::{ContainerSpec, Node, PodSpec, Registry, wait_until};

const IMAGE: &str = "127.0.0.1:5000/demo:1";

#[test]
fn images_are_pulled_listed_and_removed() {
    let node = Node::start();
    let _registry = Registry::start(&node);
    let pulled = node.crictl(&["pull", IMAGE]).ok();
    assert!(pulled.contains("sha256:"), "{pulled}");
    let images = node.crictl(&["images", "-o", "json"]).json();
    let image = &images["images"][0];
    assert_eq!(image["repoTags"][0], IMAGE);
    assert!(image["repoDigests"][0].as_str().unwrap().starts_with("127.0.0.1:5000/demo@sha256:"), "{image}");
    let id = image["id"].as_str().unwrap();
    let status = node.crictl(&["inspecti", IMAGE]).json();
    assert_eq!(status["status"]["id"], id);
    assert_eq!(status["info"]["imageSpec"]["config"]["Cmd"][0], "/bin/sh");
    assert!(
        node.crictl(&["imagefsinfo", "-o", "json"]).json()["status"]["imageFilesystems"][0]["usedBytes"]["value"]
            .is_string()
    );
    node.crictl(&["rmi", IMAGE]).ok();
    assert_eq!(node.crictl(&["images", "-q"]).ok(), "");
    node.end();
}

#[test]
fn a_pod_goes_through_its_life_cycle() {
    let node = Node::start();
    let _registry = Registry::start(&node);
    node.crictl(&["pull", IMAGE]).ok();
    let pod = PodSpec::named(&node, "web");
    let pod_id = node.run_pod(&pod);
    assert_eq!(pod_id.len(), 64);

    let pods = node.crictl(&["pods", "-o", "json"]).json();
    assert_eq!(pods["items"][0]["state"], "SANDBOX_READY");
    assert_eq!(pods["items"][0]["metadata"]["name"], "web");
    let inspect = node.crictl(&["inspectp", &pod_id]).json();
    let address = inspect["status"]["network"]["ip"].as_str().unwrap().to_owned();
    assert!(address.parse::<std::net::Ipv4Addr>().is_ok(), "{inspect}");

    let spec = ContainerSpec::new("server", IMAGE, &["httpd", "-f", "-p", "80", "-h", "/www"]);
    let id = node.create_container(&pod_id, &pod, &spec).ok();
    assert_eq!(state(&node, &id), "CONTAINER_CREATED");
    node.crictl(&["start", &id]).ok();
    assert_eq!(state(&node, &id), "CONTAINER_RUNNING");
    assert_eq!(node.crictl(&["ps", "-q"]).ok(), id);

    wait_until("the server answers on the pod's address", || {
        node.run("curl", &["-fsS", &format!("http://{address}/")]).stdout.contains("hello from a pod")
    });
    assert_eq!(node.crictl(&["exec", "-s", &id, "echo", "in", "the", "container"]).ok(), "in the container");
    let failed = node.crictl(&["exec", "-s", &id, "sh", "-c", "echo out; echo err >&2; exit 3"]);
    // crictl does not print the output of a command that failed, only the error of the engine.
    assert!(failed.code != Some(0) && failed.stderr.contains('3'), "{failed:?}");

    let inspect = node.crictl(&["inspect", &id]).json();
    assert!(inspect["info"]["pid"].as_i64().is_some_and(|pid| pid > 1), "{inspect}");
    assert_eq!(inspect["info"]["runtimeSpec"]["process"]["args"][0], "httpd");
    let stats = node.crictl(&["stats", "-o", "json", &id]).json();
    assert!(number(&stats["stats"][0]["memory"]["workingSetBytes"]["value"]) > 0, "{stats}");

    node.crictl(&["stop", &id]).ok();
    assert_eq!(state(&node, &id), "CONTAINER_EXITED");
    node.crictl(&["rm", &id]).ok();
    assert_eq!(node.crictl(&["ps", "-a", "-q"]).ok(), "");
    node.crictl(&["stopp", &pod_id]).ok();
    assert_eq!(node.crictl(&["pods", "-o", "json"]).json()["items"][0]["state"], "SANDBOX_NOTREADY");
    node.crictl(&["rmp", &pod_id]).ok();
    assert_eq!(node.crictl(&["pods", "-q"]).ok(), "");
    node.end();
}

#[test]
fn logs_contain_the_output_of_the_container() {
    let node = Node::start();
    node.load_image();
    let pod = PodSpec::named(&node, "talk");
    let pod_id = node.run_pod(&pod);
    let spec = ContainerSpec::new("talker", "demo:1", &["sh", "-c", "echo one; echo two >&2; printf three"]);
    let id = node.run_container(&pod_id, &pod, &spec);
    wait_until("the container has exited", || state(&node, &id) == "CONTAINER_EXITED");
    let logs = node.crictl(&["logs", &id]);
    assert_eq!(logs.stdout, "one\nthree");
    assert_eq!(logs.stderr.trim(), "two");
    let raw = std::fs::read_to_string(node.logs().join("talk/talker.log")).unwrap();
    assert_eq!(raw.lines().filter(|line| line.contains(" stdout F one")).count(), 1, "{raw}");
    assert_eq!(raw.lines().filter(|line| line.contains(" stderr F two")).count(), 1, "{raw}");
    assert_eq!(raw.lines().filter(|line| line.contains(" stdout P three")).count(), 1, "{raw}");
    node.remove_all_pods();
    node.end();
}

#[test]
fn info_and_version_are_correct() {
    let node = Node::start();
    let info = node.crictl(&["info"]).json();
    for condition in info["status"]["conditions"].as_array().unwrap() {
        assert_eq!(condition["status"], true, "{condition}");
    }
    let version = node.crictl(&["version"]).ok();
    assert!(version.contains("RuntimeName:  pinion") && version.contains("Version:  0.1.0"), "{version}");
    node.end();
}

fn state(node: &Node, id: &str) -> String {
    node.crictl(&["inspect", id]).json()["status"]["state"].as_str().unwrap().to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_u64()).unwrap_or(0)
}
