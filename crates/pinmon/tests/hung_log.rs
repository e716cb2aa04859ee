//! A log file system that hangs: the containers with logs on it wait and no others do, and no line is lost or doubled.

mod node;

use std::{
    fs,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use monitor_api::{
    Adopt, Attachments, ContainerDescription, Event, Holding, HoldingState, KillScope, Pong, Request, Role,
    StuckWriter, Target,
};
use node::disk::Disk;
use node::{Node, PATIENCE, TestContainer};
use testbed::wait_until;

/// Prints numbers without a pause until a file exists.
const COUNTER: &str = "i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo $i; done; echo total $i";
/// Time limit of operations that do not wait for the file system. They take much less, even on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// A container with its log on the disk that will hang, and the descriptor of the log, which a daemon keeps.
struct HungContainer {
    container: TestContainer,
    log: OwnedFd,
}

fn duplicate(fd: &OwnedFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().expect("dup")
}

fn counter(node: &mut Node, disk: &Disk, id: &str) -> HungContainer {
    let path = disk.path().join(format!("{id}.log"));
    fs::write(&path, "").expect("a log");
    std::os::unix::fs::symlink(path, node.log_path(id)).expect("a link");
    let log = node.open_log(id);
    HungContainer { container: node.run(id, &["sh", "-c", COUNTER]), log }
}

/// Waits until the monitor reports that the disk hangs.
fn wait_until_stuck(node: &mut Node) -> StuckWriter {
    let mut stuck = Vec::new();
    wait_until("a file system hangs", TIME_LIMIT, || {
        stuck = node.ping().stuck;
        !stuck.is_empty()
    });
    assert_eq!(stuck.len(), 1, "only one file system hangs: {stuck:?}");
    stuck.remove(0)
}

/// Runs, kills and deletes a container with its log elsewhere, and makes execs in other containers; none of it may wait
/// for the disk.
fn bystanders(node: &mut Node, round: &str, exec_in: &[&str]) {
    let begin = Instant::now();
    for (n, container) in exec_in.iter().enumerate() {
        let id = format!("{round}-exec-{n}");
        node.exec(container, &id, &["true"]).expect("exec");
        assert_eq!(node.wait_exec(&id).code, Some(0));
    }
    let id = format!("{round}-life");
    node.shell(&id, "echo here; sleep 1000");
    node.wait_for_entry(&id, "stdout F here");
    node.kill(Target::Container(id.clone()), libc::SIGKILL, KillScope::All).expect("kill");
    assert_eq!(node.wait(&id).signal, Some(9));
    node.delete(&id);
    assert!(begin.elapsed() < TIME_LIMIT, "{round}: {:?}", begin.elapsed());
}

/// Asserts that the log of a counter is `1..=n` in order, each once, with the total as its last entry if the counter
/// `ended`.
fn assert_counted(node: &Node, id: &str, ended: bool) {
    let log = node.log(id);
    let (last, lines) = match (ended, log.split_last()) {
        (true, Some((last, lines))) => (Some(last), lines),
        (false, Some(_)) => (None, &log[..]),
        (_, None) => panic!("{id}: the log is empty"),
    };
    for (n, line) in (1..).zip(lines) {
        assert_eq!(*line, format!("stdout F {n}"), "{id}: a line is lost or doubled");
    }
    assert!(last.is_none_or(|last| *last == format!("stdout F total {}", lines.len())), "{id}: {last:?}");
}

fn stop_counters(node: &mut Node, ids: &[&str]) {
    fs::write(node.state.path().join("root/tmp/stop"), "").expect("written");
    let mut ends = Vec::new();
    while ends.len() < ids.len() {
        if let Event::Exited { container, status } = node.event() {
            assert_eq!(status.code, Some(0), "{container}");
            ends.push(container);
        }
    }
    for id in ids {
        assert_counted(node, id, true);
        node.delete(id);
    }
}

#[test]
fn a_log_that_hangs_blocks_only_its_own_containers() {
    let mut disk = Disk::new();
    let mut node = Node::start();
    for id in ["a", "b", "killed"] {
        drop(counter(&mut node, &disk, id));
    }
    node.run("elsewhere", &["sleep", "1000"]);
    disk.freeze();
    let stuck = wait_until_stuck(&mut node);
    assert_eq!(stuck.containers, 3, "{stuck:?}");
    bystanders(&mut node, "hung", &["elsewhere", "a", "elsewhere", "b"]);
    // Its exit does not wait for the disk either.
    let begin = Instant::now();
    node.kill(Target::Container("killed".into()), libc::SIGKILL, KillScope::All).expect("kill");
    assert_eq!(node.wait("killed").signal, Some(9));
    node.delete("killed");
    let log = Attachments::new().with(Role::Log, duplicate(&node.open_log("elsewhere")));
    node.request(Request::ReopenLog { container: "a".into() }, log).expect("reopen");
    assert!(begin.elapsed() < TIME_LIMIT, "{:?}", begin.elapsed());
    disk.thaw();
    node.delete("elsewhere");
    assert_eq!(node.wait("elsewhere").signal, Some(9));
    fs::write(node.state.path().join("root/tmp/stop"), "").expect("written");
    let mut ends = [node.event(), node.event()].map(|event| match event {
        Event::Exited { container, .. } => container,
        other => panic!("unexpected: {other:?}"),
    });
    ends.sort();
    assert_eq!(ends, ["a", "b"]);
    // The output that the deleted container wrote before its exit still reaches its log.
    wait_until("the log that hung is complete", PATIENCE, || node.log("killed").len() > 1000);
    assert_counted(&node, "killed", false);
    assert_counted(&node, "b", true);
    let (before, after) = (node.log("a"), node.log("elsewhere"));
    let lines: Vec<String> = before.into_iter().chain(after).collect();
    let (last, lines) = lines.split_last().expect("lines");
    assert!((1..).zip(lines).all(|(n, line)| *line == format!("stdout F {n}")), "a line is lost or doubled");
    assert_eq!(*last, format!("stdout F total {}", lines.len()));
    assert_eq!(node.ping(), Pong::default());
    ["a", "b"].into_iter().for_each(|id| node.delete(id));
    node.end();
}

#[test]
fn monitors_killed_while_a_log_hangs_lose_and_repeat_no_line() {
    let mut disk = Disk::new();
    let mut node = Node::start();
    let hung_containers = ["a", "b", "c"].map(|id| counter(&mut node, &disk, id));
    let elsewhere = node.run("elsewhere", &["sleep", "1000"]);
    let path = disk.path().join("brief.log");
    fs::write(&path, "").expect("a log");
    std::os::unix::fs::symlink(path, node.log_path("brief")).expect("a link");
    let brief = node.create("brief", &["seq", "1", "3000"]);
    let brief_log = node.open_log("brief");
    disk.freeze();
    wait_until_stuck(&mut node);
    // Its exit is reported immediately, while its output is pending.
    node.start_container("brief").expect("start");
    assert_eq!(node.event(), Event::OutputPending { container: "brief".into() });
    let status = node.wait("brief");
    assert_eq!(status.code, Some(0));
    for round in 0..3 {
        node.replace_monitor();
        for HungContainer { container, log } in &hung_containers {
            adopt(&mut node, container, duplicate(log), HoldingState::Running);
        }
        adopt(&mut node, &brief, duplicate(&brief_log), HoldingState::Exited(status.clone()));
        let log = node.open_log("elsewhere");
        adopt(&mut node, &elsewhere, log, HoldingState::Running);
        bystanders(&mut node, &format!("round {round}").replace(' ', "-"), &["elsewhere", "a", "b", "c"]);
    }
    wait_until_stuck(&mut node);
    disk.thaw();
    while node.event() != (Event::Drained { container: "brief".into() }) {}
    let numbers: Vec<String> = (1..=3000).map(|n| format!("stdout F {n}")).collect();
    assert!(node.log("brief") == numbers, "{} lines", node.log("brief").len());
    ["brief", "elsewhere"].into_iter().for_each(|id| node.delete(id));
    assert_eq!(node.wait("elsewhere").signal, Some(9));
    stop_counters(&mut node, &["a", "b", "c"]);
    node.end();
}

/// Adopts a container, as the daemon does after the death of a monitor.
fn adopt(node: &mut Node, container: &TestContainer, log: OwnedFd, state: HoldingState) {
    let description = ContainerDescription {
        id: container.id.clone(),
        sandbox: "pod".into(),
        cgroup: format!("{}/{}", node.cgroup, container.id),
        pid: container.created.pid,
        start_time: container.created.start_time,
        ..ContainerDescription::default()
    };
    let holding = Holding { container: description, state };
    let mut files = Attachments::new().with(Role::Pidfd, duplicate(&container.pidfd)).with(Role::Log, log);
    for (role, fd) in container.reading.iter() {
        files.push(*role, duplicate(fd));
    }
    node.request(Request::Adopt(Adopt { holding }), files).expect("adopt");
}
