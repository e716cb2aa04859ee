//! Nodes whose runtime handlers are shims, as the tests of shims share them.

use std::path::PathBuf;

use system_tests::{Node, Options, Outcome, PodSpec, Process, wait_until};

pub(crate) const IMAGE: &str = "docker.io/library/demo:1";

/// A shim that works.
#[derive(Clone)]
pub(crate) struct Shim {
    pub(crate) name: &'static str,
    pub(crate) binary: PathBuf,
}

pub(crate) fn node(shims: &[Shim]) -> Node {
    let handler = |shim: &Shim| {
        let (name, binary) = (shim.name, shim.binary.display());
        format!("[handlers.{name}]\nkind = \"shim\"\nbinary = \"{binary}\"\ntimeout = \"20s\"\n")
    };
    node_with(&shims.iter().map(handler).collect::<String>())
}

pub(crate) fn node_with(config: &str) -> Node {
    let node = Node::with(Options { config: config.to_owned(), ..Options::default() });
    node.load_image();
    node
}

pub(crate) fn run_pod(node: &Node, pod: &PodSpec, handler: &str) -> Outcome {
    let name = pod.0["metadata"]["name"].as_str().expect("a name").to_owned();
    let file = node.file(&format!("pod-{name}.json"), &pod.0);
    node.crictl(&["runp", "--runtime", handler, &file])
}

pub(crate) fn state(node: &Node, id: &str) -> (String, Option<i64>) {
    let status = node.crictl(&["inspect", id]).json()["status"].clone();
    (status["state"].as_str().unwrap_or_default().to_owned(), status["exitCode"].as_i64())
}

/// Returns the processes of shims.
pub(crate) fn shim_processes(node: &Node) -> Vec<String> {
    node.processes().iter().filter(|process| is_shim(process)).map(Process::command_line).collect()
}

pub(crate) fn is_shim(process: &Process) -> bool {
    let line = process.command_line();
    let program = line.split(' ').next().unwrap_or_default();
    program.ends_with("/test-shim") || program.contains("/containerd-shim-")
}

/// Checks that nothing of a shim is left: no process, and no mount of a container on the node.
pub(crate) fn check_gone(node: &Node) {
    let mut left = Vec::new();
    let gone = || {
        left = shim_processes(node);
        left.is_empty()
    };
    wait_until("the shims are gone", gone);
    assert_eq!(node.crictl(&["ps", "-aq"]).ok(), "");
    assert_eq!(node.crictl(&["pods", "-q"]).ok(), "");
    check_mounts(node);
}

pub(crate) fn check_mounts(node: &Node) {
    let mounts: Vec<String> = node.mountinfo().into_iter().filter(|line| line.contains("/bundle/")).collect();
    assert!(mounts.is_empty(), "mounted on the node: {mounts:?}");
}
