//! OOM kills of containers whose scope systemd removes before the monitor handles their exit.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testbed::wait_until;

use crate::{
    cgroup_driver::{MIB, TIMEOUT, container, pod, property, start, systemctl},
    node::{Node, ok},
};

/// Kills that the monitor can notice before systemd does, and kills while it is stopped.
const RACES: u32 = 10;
const KILLS: u32 = 20;
/// Number of OOM kills for each SIGKILL of another process.
const SIGKILL_AFTER: u32 = 4;
/// Waits for a file that the test creates, then exceeds the memory limit.
const EXHAUST: &str = "while [ ! -e /go ]; do sleep 0.1; done; exec tail /dev/zero";

/// A pod, and the files from which its containers are created.
struct Pod<'a> {
    node: &'a Node,
    slice: &'a str,
    id: String,
    file: String,
}

/// A running container.
struct Started {
    id: String,
    pid: Pid,
    group: PathBuf,
}

impl<'a> Pod<'a> {
    fn run(node: &'a Node, slice: &'a str) -> Self {
        let file = node.file("pod.json", &pod(node, "p", slice));
        Self { node, slice, id: ok(node.crictl(&["runp", &file])), file }
    }

    /// Starts a container, and waits until systemd has its scope.
    fn start(&self, name: &str, script: &str) -> Started {
        let limit = json!({"memory_limit_in_bytes": 16 * MIB, "memory_swap_limit_in_bytes": 16 * MIB});
        let mut config = container(script, &limit);
        config["metadata"]["name"] = json!(name);
        let file = self.node.file("container.json", &config);
        let id = ok(self.node.crictl(&["create", &self.id, &file, &self.file]));
        let unit = format!("pinion-{id}.scope");
        let group = PathBuf::from(format!("/sys/fs/cgroup/kubepods.slice/{}/{unit}", self.slice));
        let init = fs::read_to_string(group.join("cgroup.procs")).expect("a cgroup");
        let pid = init.trim().parse().ok().and_then(Pid::from_raw).expect("the pid of the init");
        ok(self.node.crictl(&["start", &id]));
        wait_until("systemd knows the scope", TIMEOUT, || property(&unit, "ActiveState") == "active");
        Started { id, pid, group }
    }

    /// Waits for the exit. Returns its reason and code.
    fn exit(&self, container: &Started) -> (String, u64) {
        let process = format!("/proc/{}", container.pid.as_raw_nonzero());
        wait_until("the process was reaped", TIMEOUT, || !Path::new(&process).exists());
        let mut status = Value::Null;
        wait_until("the container exited", TIMEOUT, || {
            let inspect = ok(self.node.crictl(&["inspect", &container.id]));
            status = serde_json::from_str::<Value>(&inspect).expect("JSON")["status"].take();
            status["state"] == "CONTAINER_EXITED"
        });
        let reason = status["reason"].as_str().unwrap_or_default().to_owned();
        (reason, status["exitCode"].as_u64().expect("an exit code"))
    }

    /// Makes containers end while the monitor is stopped, which continues after systemd has removed their scopes.
    fn end_unnoticed(&self, containers: &[&Started], end: impl Fn(&Started)) {
        self.node.signal_monitor(Signal::STOP);
        containers.iter().for_each(|container| end(container));
        for container in containers {
            wait_until("systemd removed the scope", TIMEOUT, || !container.group.exists());
        }
        self.node.signal_monitor(Signal::CONT);
    }
}

impl Started {
    fn exhaust(&self) {
        fs::write(format!("/proc/{}/root/go", self.pid.as_raw_nonzero()), "").expect("written");
    }

    fn kill(&self) {
        kill_process(self.pid, Signal::KILL).expect("killed");
    }

    fn oom_kills(&self) -> u64 {
        let text = fs::read_to_string(self.group.join("memory.events")).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()).unwrap_or(0)
    }
}

#[test]
fn every_oom_kill_is_reported_and_nothing_else() {
    let node = start("killed", 7);
    let pod = Pod::run(&node, "kubepods-pod5.slice");
    for number in 0..RACES {
        let victim = pod.start(&format!("victim{number}"), EXHAUST);
        victim.exhaust();
        assert_eq!(pod.exit(&victim), ("OOMKilled".to_owned(), 137), "kill {number}");
    }
    // A container that runs all the time, and has OOM kills of its own.
    let other = pod.start("other", "tail /dev/zero; while true; do sleep 1000; done");
    wait_until("a process of another container was killed", TIMEOUT, || other.oom_kills() == 1);
    for number in 0..KILLS {
        let victim = pod.start(&format!("unnoticed{number}"), EXHAUST);
        pod.end_unnoticed(&[&victim], Started::exhaust);
        assert_eq!(pod.exit(&victim), ("OOMKilled".to_owned(), 137), "unnoticed kill {number}");
        if number % SIGKILL_AFTER == 0 {
            let killed = pod.start(&format!("killed{number}"), "sleep 1000");
            pod.end_unnoticed(&[&killed], Started::kill);
            assert_eq!(pod.exit(&killed), ("Error".to_owned(), 137), "SIGKILL {number}");
        }
    }
    assert_eq!(other.oom_kills(), 1);
    ok(node.crictl(&["rmp", "-f", &pod.id]));
    systemctl(&["stop", "kubepods-pod5.slice"]);
}

#[test]
fn oom_kills_at_the_same_moment_are_reported_for_all_that_were_killed_and_over_an_upgrade() {
    let node = start("together", 9);
    let pod = Pod::run(&node, "kubepods-pod7.slice");
    let victims = [pod.start("first", EXHAUST), pod.start("second", EXHAUST)];
    let bystander = pod.start("third", EXHAUST);
    // The counts that are known are part of the state of the monitor.
    ok(node.pinion(&["upgrade", "monitor"]));
    pod.end_unnoticed(&[&victims[0], &victims[1]], Started::exhaust);
    for victim in &victims {
        assert_eq!(pod.exit(victim), ("OOMKilled".to_owned(), 137));
    }
    // One that ends by itself at that moment was not killed.
    for number in 0..4 {
        let victim = pod.start(&format!("victim{number}"), EXHAUST);
        let ended = pod.start(&format!("ended{number}"), "trap 'exit 3' TERM; while true; do sleep 0.1; done");
        pod.end_unnoticed(&[&victim, &ended], |container| match container.id == ended.id {
            true => kill_process(container.pid, Signal::TERM).expect("signalled"),
            false => container.exhaust(),
        });
        assert_eq!(pod.exit(&ended), ("Error".to_owned(), 3), "{number}");
        assert_eq!(pod.exit(&victim), ("OOMKilled".to_owned(), 137), "{number}");
    }
    ok(node.pinion(&["upgrade", "monitor"]));
    pod.end_unnoticed(&[&bystander], Started::kill);
    assert_eq!(pod.exit(&bystander), ("Error".to_owned(), 137));
    let last = pod.start("last", EXHAUST);
    ok(node.pinion(&["upgrade", "monitor"]));
    pod.end_unnoticed(&[&last], Started::exhaust);
    assert_eq!(pod.exit(&last), ("OOMKilled".to_owned(), 137));
    ok(node.crictl(&["rmp", "-f", &pod.id]));
    systemctl(&["stop", "kubepods-pod7.slice"]);
}
