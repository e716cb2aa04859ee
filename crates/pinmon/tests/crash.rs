//! Kills of the monitor and restarts of the daemon: nothing is lost, and nothing happens twice.

mod node;

use std::{fs, os::fd::AsFd};

use monitor_api::{Adopt, Attachments, ContainerDescription, Event, Holding, HoldingState, Request, Role};
use node::{Node, TestContainer};
use rustix::fd::OwnedFd;

fn duplicate(fd: &OwnedFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().expect("dup")
}

impl Node {
    /// Adopts a container, as the daemon does after the death of a monitor.
    fn adopt(&mut self, container: &TestContainer, state: HoldingState) {
        let description = ContainerDescription {
            id: container.id.clone(),
            sandbox: "pod".into(),
            cgroup: format!("{}/{}", self.cgroup, container.id),
            pid: container.created.pid,
            start_time: container.created.start_time,
            ..ContainerDescription::default()
        };
        let holding = Holding { container: description, state };
        let mut files = match &container.terminal {
            Some(terminal) => Attachments::new()
                .with(Role::Log, self.open_log(&container.id))
                .with(Role::Terminal, duplicate(terminal)),
            None => self.reading(&container.id),
        };
        files.push(Role::Pidfd, duplicate(&container.pidfd));
        if let (HoldingState::Created, Some(sync)) = (&holding.state, &container.sync) {
            files.push(Role::Sync, duplicate(sync));
        }
        self.request(Request::Adopt(Adopt { holding }), files).expect("adopt");
    }
}

fn numbers(last: u32) -> String {
    (1..=last).map(|n| format!("{n}\n")).collect()
}

#[test]
fn a_restarted_daemon_finds_everything() {
    let mut node = Node::start();
    node.create("created", &["true"]);
    node.run("running", &["sleep", "1000"]);
    node.shell("ended", "exit 6");
    node.wait("ended");
    node.request(
        Request::Keep { key: "sandbox/x".into() },
        Attachments::new().with(Role::Kept(0), node.open_log("kept")),
    )
    .expect("keep");
    node.disconnect();
    node.connect();
    let all = node.inventory();
    let state = |id: &str| &all[id].0.state;
    assert_eq!(
        (state("created"), state("running"), state("sandbox/x")),
        (&HoldingState::Created, &HoldingState::Running, &HoldingState::Kept)
    );
    assert!(matches!(state("ended"), HoldingState::Exited(status) if status.code == Some(6)));
    assert_eq!(all["running"].1.roles(), [Role::Pidfd, Role::StdoutRead, Role::StderrRead, Role::Log]);
    assert_eq!(all["sandbox/x"].1.roles(), [Role::Kept(0)]);
    assert!(all["created"].1.roles().contains(&Role::Sync));
    drop(all);
    node.start_container("created").expect("start");
    assert_eq!(node.wait("created").code, Some(0));
    ["created", "running", "ended"].into_iter().for_each(|id| node.delete(id));
    node.request(Request::Release { key: "sandbox/x".into() }, Attachments::new()).expect("release");
    node.end();
}

#[test]
fn every_line_arrives_once_however_often_the_monitor_is_killed() {
    const LAST: u32 = 2_000_000;
    let mut node = Node::start();
    let container = node.run("c", &["seq", "1", "2000000"]);
    let mut kills = 0;
    let status = loop {
        // Killed while it moves output: as soon as the log has grown.
        let before = fs::metadata(node.log_path("c")).expect("log").len();
        while fs::metadata(node.log_path("c")).expect("log").len() < before + 1000 * (kills % 37)
            && !container.has_ended()
        {
            std::thread::yield_now();
        }
        if container.has_ended() || kills == 150 {
            break node.wait("c");
        }
        node.replace_monitor();
        kills += 1;
        node.adopt(&container, HoldingState::Running);
    };
    assert!(kills >= 20, "only {kills} kills: the log is written too fast for this test");
    assert_eq!(status.code, Some(0), "after {kills} kills");
    assert!(node.text("c") == numbers(LAST).as_bytes(), "after {kills} kills: {} bytes", node.text("c").len());
    node.delete("c");
    node.end_after_kills();
}

#[test]
fn the_exit_code_is_known_although_no_monitor_was_running() {
    let mut node = Node::start();
    let container = node.shell("c", "echo up; read x < /dev/zero; sleep 0.1; exit 33");
    node.wait_for_entry("c", "stdout F up");
    let spec = node.spec("d", &["sh", "-c", "exit 12"]);
    let output = node.output("d");
    let created = node.create_with("d", spec, output).expect("create");
    node.kill(monitor_api::Target::Container("c".into()), 9, monitor_api::KillScope::Init).ok();
    node.replace_monitor();
    node.adopt(&container, HoldingState::Running);
    assert_eq!(node.wait("c").signal, Some(9));
    node.adopt(&created, HoldingState::Created);
    node.start_container("d").expect("start");
    assert_eq!(node.wait("d").code, Some(12));
    ["c", "d"].into_iter().for_each(|id| node.delete(id));
    node.end_after_kills();
}

#[test]
fn a_reopened_log_continues_in_the_new_file() {
    let mut node = Node::start();
    node.shell("c", "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i; done");
    let mut parts = Vec::new();
    for turn in 0..5 {
        let old = node.state.path().join(format!("rotated-{turn}"));
        fs::rename(node.log_path("c"), &old).expect("rotate");
        parts.push(old);
        let log = Attachments::new().with(Role::Log, node.open_log("c"));
        node.request(Request::ReopenLog { container: "c".into() }, log).expect("reopen");
    }
    node.wait("c");
    parts.push(node.log_path("c"));
    let all: String =
        parts.iter().flat_map(|p| node::entries(p)).map(|l| l["stdout F ".len()..].to_owned() + "\n").collect();
    assert!(all == numbers(3000));
    node.delete("c");
    node.end();
}

#[test]
fn a_log_that_cannot_be_written_blocks_no_container() {
    let mut node = Node::start();
    let (spec, mut output) = (node.spec("c", &["sh", "-c", "seq 1 50000; echo end"]), node.output("c"));
    output.take(Role::Log);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("open /dev/full");
    output.push(Role::Log, full.into());
    node.create_with("c", spec, output).expect("create");
    node.start_container("c").expect("start");
    let event = node.event();
    assert!(
        matches!(&event, Event::LogFailed { dropped: 1.., message, .. } if message.contains("No space")),
        "{event:?}"
    );
    assert_eq!(node.wait("c").code, Some(0));
    node.delete("c");
    node.end();
}

#[test]
fn a_container_with_a_terminal_survives_too() {
    let mut node = Node::start();
    let mut spec = node.spec("c", &["sh", "-c", "echo before; read x; echo got $x; exit 2"]);
    spec.process.as_mut().expect("process").terminal = true;
    let log = Attachments::new().with(Role::Log, node.open_log("c"));
    let container = node.create_with("c", spec, log).expect("create");
    node.start_container("c").expect("start");
    node.wait_for_entry("c", "stdout F before\r");
    node.replace_monitor();
    node.adopt(&container, HoldingState::Running);
    rustix::io::write(container.terminal.as_ref().expect("terminal"), b"x\n").expect("type");
    assert_eq!(node.wait("c").code, Some(2));
    let text = String::from_utf8_lossy(&node.text("c")).into_owned();
    assert!(text.starts_with("before\r\n") && text.ends_with("got x\r\n"), "{text:?}");
    node.delete("c");
    node.end_after_kills();
}

#[test]
fn an_inventory_is_sufficient_for_the_next_monitor() {
    let mut node = Node::start();
    let mut spec = node.spec("c", &["sh", "-c", "echo up; sleep 1000"]);
    let profile = seccomp::default_profile(&[]);
    spec.linux.as_mut().expect("linux").seccomp = Some(profile);
    let output = node.output("c");
    node.create_with("c", spec, output).expect("create");
    node.start_container("c").expect("start");
    node.create("waits", &["echo", "hi"]);
    node.disconnect();
    node.connect();
    let all = node.inventory();
    node.replace_monitor();
    for (_, (holding, files)) in all {
        node.request(Request::Adopt(Adopt { holding }), files).expect("adopt");
    }
    let (mut reader, writer) = std::io::pipe().expect("pipe");
    let process = node.spec("c", &["cat", "/proc/self/status"]).process.expect("process");
    node.exec_with("c", "e", process, Attachments::new().with(Role::Stdout, writer.into())).expect("exec");
    assert_eq!(node.wait_exec("e").code, Some(0));
    let mut status = String::new();
    std::io::Read::read_to_string(&mut reader, &mut status).expect("read");
    assert!(status.contains("Seccomp:\t2"), "{status}");
    node.start_container("waits").expect("start");
    assert_eq!(node.wait("waits").code, Some(0));
    assert_eq!(node.log("waits"), ["stdout F hi"]);
    ["c", "waits"].into_iter().for_each(|id| node.delete(id));
    node.end();
}
