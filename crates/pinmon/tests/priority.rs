//! The monitor has precedence over containers. Containers and execs inherit neither its priority nor its CPU affinity.

mod node;

use std::fs;

use node::Node;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Returns the nice values of a process and of its autogroup, if the kernel has autogroups.
fn nice(pid: &str) -> (i32, Option<i32>) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is running");
    // Field 19 of proc_pid_stat(5). The third field is the first one after the name.
    let process_nice = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(16)?.parse().ok());
    let autogroup = fs::read_to_string(format!("/proc/{pid}/autogroup")).unwrap_or_default();
    let of_session = autogroup.rsplit_once("nice ").and_then(|(_, number)| number.trim().parse().ok());
    (process_nice.expect("a nice value"), of_session)
}

fn children_of(pid: &str) -> Vec<String> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn containers_and_execs_have_the_default_priority() {
    let mut node = Node::start();
    node.shell("c", "echo ready; exec sleep 1000");
    node.wait_for_entry("c", "stdout F ready");
    node.exec("c", "e", &["sleep", "1001"]).expect("exec");
    let monitor = node.monitor.as_raw_nonzero().to_string();
    let (process_nice, autogroup) = nice(&monitor);
    // A nice value that was set by an administrator, or here for the test, is kept.
    let preset = nice("self").0;
    let unless_preset = |value| if preset == 0 { value } else { preset };
    assert_eq!(process_nice, unless_preset(-20));
    assert!(autogroup.is_none_or(|nice| nice == -20), "{autogroup:?}");
    let mut seen = Vec::new();
    for pid in children_of(&monitor) {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).expect("the process is running");
        let (process_nice, autogroup) = nice(&pid);
        let expected = unless_preset(if name == "pinmon-log\n" { -5 } else { 0 });
        assert_eq!((process_nice, autogroup.unwrap_or(0)), (expected, 0), "{name}");
        seen.push(name.trim_end().to_owned());
    }
    // The container, the exec and the log writer.
    seen.sort();
    assert_eq!(seen, ["pinmon-log", "sleep", "sleep"]);
    node.delete("c");
    node.end();
}

/// `CPUAffinity=` in the unit of the daemon, or taskset(1), applies to the engine only.
#[test]
fn containers_and_execs_may_use_every_cpu() {
    let mut node = Node::start();
    let look = "while read name list; do case $name in Cpus_allowed_list:) echo $list;; esac; done < /proc/self/status";
    node.shell("free", look);
    node.wait("free");
    let mut one = CpuSet::new();
    one.set(0);
    sched_setaffinity(Some(node.monitor), &one).expect("sched_setaffinity");
    node.shell("c", &format!("{look}; exec sleep 1000"));
    node.wait_for_entry("c", &node.log("free")[0]);
    let (started, output) = node.exec("c", "e", &["sleep", "1001"]).expect("exec");
    let status = fs::read_to_string(format!("/proc/{}/status", started.pid)).expect("the process is running");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list").trim();
    assert_eq!(node.log("free"), [format!("stdout F {list}")]);
    drop(output);
    ["free", "c"].into_iter().for_each(|id| node.delete(id));
    node.end();
}
