//! Fifty pods need only the processes of their users and little memory of Pinion's; a restart of the daemon needs few
//! system calls per pod.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::PathBuf};

use system_tests::{ContainerSpec, Node, PodSpec, Process, wait_until};

const PODS: usize = 50;
/// The number of pods at which a start is counted first, to separate the cost of each pod from the constant cost.
const FEW: usize = 10;
/// Maximum number of system calls of a start for each pod with one container. It was 115 before unneeded reads were
/// removed, and is 45 in this build, which checks each descriptor that it closes.
const CALLS_MAX: usize = 54;

#[test]
fn fifty_pods_need_fifty_processes() {
    let mut node = Node::start();
    node.load_image();
    let mounts = node.mountinfo().len();
    let pss_without_pods = pss(&node);
    let mut calls_with_few = 0;
    for number in 0..PODS {
        if number == FEW {
            calls_with_few = calls_of_start(&mut node);
        }
        let pod = PodSpec::named(&node, &format!("pod{number}"));
        let id = node.run_pod(&pod);
        node.run_container(&id, &pod, &ContainerSpec::new("sleeper", "demo:1", &["sleep", "100000"]));
    }

    let mut names: Vec<String> = node.processes().into_iter().map(|process| process.name).collect();
    names.sort();
    let expected: Vec<String> = ["pinion", "pinmon", "pinmon-log"]
        .into_iter()
        .chain(std::iter::repeat_n("sleep", PODS))
        .map(str::to_owned)
        .collect();
    assert_eq!(names, expected, "only the daemon, the monitor, one log writer and the users' processes");

    let added = node.mountinfo().len() - mounts;
    assert!(added <= PODS, "{added} mounts for {PODS} pods: at most a pin for each");
    println!("PSS of daemon and monitor per pod: {} KiB", pss(&node).saturating_sub(pss_without_pods) / PODS as u64);
    println!("PSS of the log writer: {} KiB", pss_of(&node.process("pinmon-log")));

    let before = status_files(&node);
    let calls = calls_of_start(&mut node).saturating_sub(calls_with_few) / (PODS - FEW);
    println!("system calls of a start for each pod: {calls}");
    assert!(calls <= CALLS_MAX, "{calls} system calls for each pod");
    assert_eq!(status_files(&node), before, "a start wrote a status that had not changed");

    node.remove_all_pods();
    assert_eq!(node.mountinfo().len(), mounts, "leaked mounts");
    node.end();
}

/// Restarts the daemon under strace, and returns the number of its system calls until it is ready.
fn calls_of_start(node: &mut Node) -> usize {
    let trace = node.dir.path().join("strace");
    node.stop_daemon();
    let lines = node.daemon_log().matches(" ready ").count();
    let strace = ["strace", "-f", "-qq", "-s", "80", "-o", trace.to_str().expect("UTF-8")];
    node.spawn_daemon(&strace.map(str::to_owned));
    wait_until("the daemon is ready", || node.daemon_log().matches(" ready ").count() > lines);
    node.stop_daemon();
    let text = fs::read_to_string(&trace).expect("the output of strace (scripts/setup test installs it)");
    node.start_daemon();
    let until_ready = text.lines().take_while(|line| !line.contains("INFO ready"));
    until_ready.filter(|line| !line.contains(" resumed>")).count()
}

/// Returns the status files and their inode numbers, which change when a file is written.
fn status_files(node: &Node) -> BTreeMap<PathBuf, u64> {
    let state = PathBuf::from(format!("/proc/{}/root/run/pinion", node.init_pid()));
    let directories = ["container", "sandbox"].map(|kind| fs::read_dir(state.join(kind)).expect("read"));
    let files = directories.into_iter().flatten().flatten().map(|entry| entry.path().join("status.json"));
    files.map(|file| (file.clone(), fs::metadata(&file).expect("a status").ino())).collect()
}

/// Returns the PSS of the daemon, the monitor and its log writer in KiB.
fn pss(node: &Node) -> u64 {
    node.processes().iter().filter(|process| process.name.starts_with("pin")).map(pss_of).sum()
}

fn pss_of(process: &Process) -> u64 {
    process.memory().map_or(0, |memory| memory.proportional)
}
