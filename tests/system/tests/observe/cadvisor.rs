//! The socket for the kubelet's cAdvisor.

use std::{fs, os::unix::net::UnixListener};

use cri_proto::v1::{StopContainerRequest, StopPodSandboxRequest, runtime_service_client::RuntimeServiceClient};
use serde_json::Value;
use system_tests::{Node, Outcome, wait_until};

use super::{channel, node, run};

const SOCKET: &str = "/run/crio/crio.sock";

fn curl(node: &Node, path: &str, options: &[&str]) -> Outcome {
    let url = format!("http://crio{path}");
    node.run("curl", &[&["-sS", "-m", "10", "--unix-socket", SOCKET, &url], options].concat())
}

fn status(node: &Node, path: &str, options: &[&str]) -> String {
    curl(node, path, &[&["-o", "/dev/null", "-w", "%{http_code}"], options].concat()).ok()
}

fn container(node: &Node, id: &str) -> Value {
    curl(node, &format!("/containers/{id}"), &["-f"]).json()
}

/// Returns the names for cAdvisor of cgroups in the cgroup of a pod, in all hierarchies.
fn groups(node: &Node, pod: &str) -> Vec<String> {
    let directories = node.cgroups().into_iter().filter_map(|group| fs::read_dir(group.join(pod)).ok());
    let mut names: Vec<String> = directories
        .flatten()
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok().filter(|name| name.starts_with("crio")))
        .collect();
    names.sort();
    names.dedup();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn cadvisor_finds_containers_and_the_network_of_their_pods() {
    let mut node = node(&format!("cadvisor.socket = \"{SOCKET}\""));
    node.load_image();
    let (pod, id) = run(&channel(&node).await).await;
    assert_eq!(curl(&node, "/info", &["-f"]).json()["cgroup_driver"], "cgroupfs");
    assert_eq!(node.run("stat", &["-c", "%a %U", SOCKET]).ok(), "600 root");

    let found = container(&node, &id);
    assert_eq!((&found["name"], &found["image"]), (&id.as_str().into(), &"docker.io/library/demo:1".into()));
    let labels = serde_json::json!({
        "io.kubernetes.container.name": "app", "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "uid-web",
    });
    assert_eq!(found["labels"], labels);
    let found_pod = container(&node, &pod);
    assert_eq!(found_pod["labels"]["io.kubernetes.container.name"], "POD");
    assert_eq!(found_pod["labels"]["io.kubernetes.pod.name"], "web");
    assert_eq!(found_pod["pid"], found["pid"]);
    let devices = node.run("cat", &[&format!("/proc/{}/net/dev", found["pid"])]).ok();
    assert!(devices.contains("eth0:"), "the process is in the network namespace of the pod: {devices}");
    let mut named = [format!("crio-{id}.scope"), format!("crio-{pod}.scope")];
    named.sort();
    assert_eq!(groups(&node, &pod), named);

    assert_eq!(status(&node, &format!("/containers/{}", &id[..12]), &[]), "404", "a prefix of an id");
    assert_eq!(status(&node, &format!("/containers/{}", "0".repeat(64)), &[]), "404");
    assert_eq!(status(&node, "/containers/", &[]), "404");
    assert_eq!(status(&node, &format!("/containers/{id}"), &["-X", "DELETE"]), "405");
    assert_eq!(status(&node, &format!("/{}", "x".repeat(100_000)), &[]), "431");

    node.kill_daemon();
    node.start_daemon();
    assert_eq!(container(&node, &id), found, "after a restart");
    let mut runtime = RuntimeServiceClient::new(channel(&node).await);
    runtime.stop_container(StopContainerRequest { container_id: id.clone(), timeout: 0 }).await.expect("it stops");
    assert_eq!(container(&node, &pod)["pid"], 0, "no process is in the pod");
    runtime.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod.clone() }).await.expect("it stops");
    assert!(!groups(&node, &pod).contains(&format!("crio-{pod}.scope")), "a stopped pod has no network");
    node.remove_all_pods();
    assert_eq!(status(&node, &format!("/containers/{pod}"), &[]), "404");
    node.end();
}

#[test]
fn the_socket_of_another_process_is_not_replaced() {
    let mut node = node(&format!("cadvisor.socket = \"{SOCKET}\""));
    node.stop_daemon();
    let path = format!("/proc/{}/root{SOCKET}", node.init_pid());
    assert!(!fs::exists(&path).expect("it is known"), "a stopped daemon removes its socket");
    let _listener = UnixListener::bind(&path).expect("bind");
    node.spawn_daemon(&[]);
    wait_until("the daemon has exited", || node.daemon_status().is_some());
    let log = node.daemon_log();
    assert!(log.contains(&format!("cadvisor.socket: another process listens on {SOCKET}, perhaps CRI-O")), "{log}");
    // The monitor that the first daemon started is still there.
    node.end_without_daemon();
}
