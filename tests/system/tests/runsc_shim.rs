//! Pods of gVisor, whose containers run in a sandbox: `RUNSC_SHIM` names containerd-shim-runsc-v1, and `RUNSC` runsc.
//! `tests/external/shims` runs it.

#[allow(dead_code, reason = "each test program uses a part")]
mod shim;

use std::{env, fs};

use serde_json::json;
use shim::{IMAGE, check_gone, is_shim, node_with, run_pod, state};
use system_tests::{ContainerSpec, Node, PodSpec, wait_until};
use tempfile::TempDir;

/// Returns a node with the handler `runsc`, and the directory of its configuration.
fn gvisor() -> (Node, TempDir) {
    let shim = env::var("RUNSC_SHIM").expect("RUNSC_SHIM names containerd-shim-runsc-v1");
    let runsc = env::var("RUNSC").expect("RUNSC names runsc");
    let directory = tempfile::Builder::new().prefix("pinion-test-").tempdir().expect("a directory");
    let config = directory.path().join("runsc.toml");
    fs::write(&config, format!("binary_name = \"{runsc}\"\n")).expect("write a configuration");
    let node = node_with(&format!(
        "[handlers.runsc]\nkind = \"shim\"\nbinary = \"{shim}\"\ntimeout = \"40s\"\n\
         options = {{ type_url = \"io.containerd.runsc.v1.options\", config_path = \"{}\" }}\n",
        config.display()
    ));
    (node, directory)
}

/// Runs a pod with two containers. Returns their ids, that of the pod first.
fn two_containers(node: &Node, name: &str) -> [String; 3] {
    let pod = PodSpec::named(node, name);
    let pod_id = run_pod(node, &pod, "runsc").ok();
    let script = "dmesg; echo problem >&2; while [ ! -e /stop ]; do sleep 0.1; done; echo stopping; exit 7";
    let web = node.run_container(&pod_id, &pod, &ContainerSpec::new("web", IMAGE, &["sh", "-c", script]));
    let server = ContainerSpec::new("server", IMAGE, &["sh", "-c", "echo page > /page; httpd -f -p 127.0.0.1:8080"]);
    let server = node.run_container(&pod_id, &pod, &server);
    [pod_id, web, server]
}

fn pod_state(node: &Node, id: &str) -> String {
    node.crictl(&["inspectp", id]).json()["status"]["state"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn containers_of_a_pod_share_a_sandbox() {
    let (node, _config) = gvisor();
    let [pod, web, server] = two_containers(&node, "gvisor");
    assert_eq!(node.crictl(&["ps", "-aq"]).ok().lines().count(), 2, "the sandbox container is not listed");
    let stats = node.crictl(&["stats", "-o", "json"]).json();
    assert_eq!(stats["stats"].as_array().map(Vec::len), Some(2), "{stats}");
    let exec = |id: &str, script: &str| node.crictl(&["exec", "-s", id, "sh", "-c", script]);
    assert!(exec(&web, "cat /proc/version").ok().contains("gvisor"));
    assert_eq!(exec(&web, "hostname").ok(), "gvisor");
    exec(&web, "exit 9").error();
    wait_until("the other container answers over the loopback device", || {
        exec(&web, "wget -qO- http://127.0.0.1:8080/page").stdout.trim() == "page"
    });
    exec(&web, "touch /stop").ok();
    wait_until("it exits", || state(&node, &web).0 == "CONTAINER_EXITED");
    assert_eq!(state(&node, &web).1, Some(7));
    let log = node.crictl(&["logs", &web]);
    assert!(log.stdout.contains("Starting gVisor") && log.stdout.contains("stopping"), "{}", log.stdout);
    assert_eq!(log.stderr.trim(), "problem");
    assert_eq!(state(&node, &server).0, "CONTAINER_RUNNING");
    node.crictl(&["stop", "--timeout", "1", &server]).ok();
    assert_eq!(pod_state(&node, &pod), "SANDBOX_READY", "the sandbox does not end with its containers");
    node.crictl(&["rm", &web]).ok();
    node.crictl(&["rmp", "-f", &pod]).ok();
    check_gone(&node);
    node.end();
}

#[test]
fn containers_of_a_pod_share_pids_if_the_pod_requests_that() {
    let (node, _config) = gvisor();
    for (name, mode, is_shared) in [("shared", 0, true), ("apart", 1, false)] {
        let security = json!({"namespace_options": {"pid": mode}});
        let mut pod = PodSpec::named(&node, name);
        pod.0["linux"] = json!({"security_context": security});
        let pod_id = run_pod(&node, &pod, "runsc").ok();
        let [one, _other] = ["8106", "8107"].map(|seconds| {
            let mut spec = ContainerSpec::new(seconds, IMAGE, &["sleep", seconds]);
            spec.0["linux"]["security_context"] = security.clone();
            node.run_container(&pod_id, &pod, &spec)
        });
        let processes = node.crictl(&["exec", "-s", &one, "ps", "-o", "args"]).ok();
        assert_eq!(processes.contains("sleep 8107"), is_shared, "{name}: {processes}");
        node.crictl(&["rmp", "-f", &pod_id]).ok();
    }
    check_gone(&node);
    node.end();
}

#[test]
fn daemon_and_monitor_may_be_killed_and_a_pod_ends_with_its_sandbox() {
    let (mut node, _config) = gvisor();
    let pods: Vec<[String; 3]> = (0..2).map(|number| two_containers(&node, &format!("pod-{number}"))).collect();
    for round in 0..3 {
        node.kill_in_turn(round);
        for [pod, web, server] in &pods {
            wait_until("exec works", || node.crictl(&["exec", "-s", web, "echo", "alive"]).stdout.trim() == "alive");
            assert_eq!(state(&node, server).0, "CONTAINER_RUNNING", "round {round}");
            assert_eq!(pod_state(&node, pod), "SANDBOX_READY", "round {round}");
        }
    }
    let is_sandbox = |line: &str| line.starts_with("runsc-sandbox ");
    for process in node.processes().into_iter().filter(|process| is_sandbox(&process.command_line())) {
        node.kill(&process);
    }
    for [pod, web, server] in &pods {
        for container in [web, server] {
            wait_until("its exit is known", || state(&node, container).0 == "CONTAINER_EXITED");
        }
        wait_until("the pod is stopped", || pod_state(&node, pod) == "SANDBOX_NOTREADY");
    }
    node.remove_all_pods();
    check_gone(&node);
    assert!(!node.processes().iter().any(|process| is_shim(process) || process.command_line().starts_with("runsc")));
    node.end();
}
