//! Fifty pods cost their users' processes and next to nothing of ours.

use system_tests::{ContainerSpec, Node, PodSpec, Process};

const PODS: usize = 50;

#[test]
fn fifty_pods_are_fifty_processes() {
    let node = Node::start();
    node.load_image();
    let mounts = node.mountinfo().len();
    let rest = ours(&node);
    let mut ids = Vec::new();
    for number in 0..PODS {
        let pod = PodSpec::named(&node, &format!("pod{number}"));
        let id = node.run_pod(&pod);
        node.run_container(&id, &pod, &ContainerSpec::new("sleeper", "demo:1", &["sleep", "100000"]));
        ids.push(id);
    }

    let mut names: Vec<String> = node.processes().into_iter().map(|process| process.name).collect();
    names.sort();
    let expected: Vec<String> =
        ["pinion", "pinmon"].into_iter().chain(std::iter::repeat_n("sleep", PODS)).map(str::to_owned).collect();
    assert_eq!(names, expected, "only the daemon, the monitor and the users' processes");

    let grown = node.mountinfo().len() - mounts;
    assert!(grown <= PODS, "{grown} mounts for {PODS} pods: at most the pin of each");
    println!("PSS of daemon and monitor per pod: {} KiB", ours(&node).saturating_sub(rest) / PODS as u64);

    node.remove_all_pods();
    assert_eq!(node.mountinfo().len(), mounts, "mounts are left");
    node.end();
}

/// PSS of the daemon and the monitor, KiB.
fn ours(node: &Node) -> u64 {
    node.processes().iter().filter(|process| process.name.starts_with("pin")).map(Process::pss_kib).sum()
}
