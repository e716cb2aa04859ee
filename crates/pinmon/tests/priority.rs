//! The monitor runs before containers; containers and commands inherit neither its priority nor its CPUs.

mod node;

use std::fs;

use node::Node;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Nice values of a process and of its autogroup, where the kernel has autogroups.
fn nice(pid: &str) -> (i32, Option<i32>) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    // Field 19 of proc_pid_stat(5); the third is the first one after the name.
    let own = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(16)?.parse().ok());
    let autogroup = fs::read_to_string(format!("/proc/{pid}/autogroup")).unwrap_or_default();
    let of_session = autogroup.rsplit_once("nice ").and_then(|(_, number)| number.trim().parse().ok());
    (own.expect("a nice value"), of_session)
}

fn children_of(pid: &str) -> Vec<String> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn containers_and_commands_have_the_default_priority() {
    let mut node = Node::start();
    node.shell("c", "echo ready; exec sleep 1000");
    node.wait_for_entry("c", "stdout F ready");
    node.exec("c", "e", &["sleep", "1001"]).expect("exec");
    let monitor = node.monitor.as_raw_nonzero().to_string();
    let (own, autogroup) = nice(&monitor);
    // A nice value that an administrator set, here for the test, is kept.
    let given = nice("self").0;
    let unless_given = |value| if given == 0 { value } else { given };
    assert_eq!(own, unless_given(-20));
    assert!(autogroup.is_none_or(|nice| nice == -20), "{autogroup:?}");
    let mut seen = Vec::new();
    for pid in children_of(&monitor) {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).expect("it lives");
        let (own, autogroup) = nice(&pid);
        let expected = unless_given(if name == "pinmon-log\n" { -5 } else { 0 });
        assert_eq!((own, autogroup.unwrap_or(0)), (expected, 0), "{name}");
        seen.push(name.trim_end().to_owned());
    }
    // The container, the command, and what moves the output.
    seen.sort();
    assert_eq!(seen, ["pinmon-log", "sleep", "sleep"]);
    node.delete("c");
    node.end();
}

/// `CPUAffinity=` of the daemon's unit, or taskset(1), is for the engine.
#[test]
fn containers_and_commands_have_every_cpu() {
    let mut node = Node::start();
    let look = "while read name list; do case $name in Cpus_allowed_list:) echo $list;; esac; done < /proc/self/status";
    node.shell("free", look);
    node.wait("free");
    let mut one = CpuSet::new();
    one.set(0);
    sched_setaffinity(Some(node.monitor), &one).expect("the monitor is ours");
    node.shell("c", &format!("{look}; exec sleep 1000"));
    node.wait_for_entry("c", &node.log("free")[0]);
    let (started, output) = node.exec("c", "e", &["sleep", "1001"]).expect("exec");
    let status = fs::read_to_string(format!("/proc/{}/status", started.pid)).expect("it lives");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list").trim();
    assert_eq!(node.log("free"), [format!("stdout F {list}")]);
    drop(output);
    ["free", "c"].into_iter().for_each(|id| node.delete(id));
    node.end();
}
