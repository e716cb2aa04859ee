//! Lifecycle of containers with a real monitor.

mod node;

use std::fs;

use monitor_api::{Attachments, CommandError, FailureKind, HoldingState, KillScope, Request, Role, Target};
use node::Node;
use rustix::fd::{AsFd, OwnedFd};

#[test]
fn a_container_runs_and_its_log_is_written_and_its_exit_code_reported() {
    let mut node = Node::start();
    node.shell("c", "echo out; echo err >&2; printf rest; exit 7");
    let status = node.wait("c");
    assert_eq!((status.code, status.signal, status.oom_killed), (Some(7), None, false));
    let mut log = node.log("c");
    log.sort();
    assert_eq!(log, ["stderr F err", "stdout F out", "stdout P rest"]);
    assert!(matches!(&node.inventory()["c"].0.state, HoldingState::Exited(s) if *s == status));
    node.delete("c");
    node.delete("c");
    node.end();
}

#[test]
fn a_container_inherits_nothing_from_the_monitor() {
    let mut node = Node::start();
    node.run("fds", &["ls", "/proc/self/fd"]);
    node.wait("fds");
    // The last one is the directory that `ls` reads.
    assert_eq!(node.log("fds"), ["stdout F 0", "stdout F 1", "stdout F 2", "stdout F 3"]);
    node.run("status", &["cat", "/proc/self/status", "/proc/self/oom_score_adj"]);
    node.wait("status");
    let log = node.log("status");
    let mask = |name: &str| {
        let value =
            log.iter().find_map(|line| line.strip_prefix("stdout F ")?.strip_prefix(name)).expect("the field exists");
        u64::from_str_radix(value.trim(), 16).expect("a mask")
    };
    assert_eq!(mask("SigBlk:"), 0);
    // 32 and 33 are used by the C library, which ignores them in processes started by posix_spawn.
    assert_eq!(mask("SigIgn:") & !(0b11 << 31), 0);
    let score = std::fs::read_to_string("/proc/self/oom_score_adj").expect("own score");
    assert_eq!(log.last().map(|line| &line["stdout F ".len()..]), Some(score.trim()));
    ["fds", "status"].into_iter().for_each(|id| node.delete(id));
    node.end();
}

/// SIGTERM kills a created container that waits for its start, although the kernel discards it for an init without a
/// handler.
#[test]
fn a_created_container_is_killed_by_sigterm() {
    let mut node = Node::start();
    node.create("c", &["sleep", "1000"]);
    node.kill(Target::Container("c".into()), 15, KillScope::Init).expect("kill");
    assert_eq!(node.wait("c").code, Some(143));
    node.delete("c");
    // After execve, the program is an init without a handler.
    node.run("d", &["sleep", "1000"]);
    node.kill(Target::Container("d".into()), 15, KillScope::Init).expect("kill");
    node.kill(Target::Container("d".into()), 9, KillScope::Init).expect("SIGTERM was ignored");
    assert_eq!(node.wait("d").signal, Some(9));
    node.delete("d");
    node.end();
}

#[test]
fn a_missing_program_is_reported_by_name() {
    let mut node = Node::start();
    let (spec, output) = (node.spec("c", &["/bin/nothing-here"]), node.output("c"));
    let failure = match node.create_with("c", spec, output) {
        Ok(_) => {
            let failure = node.start_container("c").expect_err("no such program");
            let status = node.wait("c");
            assert!(status.code.is_some());
            node.delete("c");
            failure
        }
        Err(failure) => failure,
    };
    assert_eq!((failure.kind, failure.command), (FailureKind::Command, Some(CommandError::NotFound)), "{failure}");
    assert!(failure.message.contains("/bin/nothing-here"), "{failure}");
    node.end();
}

#[test]
fn a_bad_spec_leaves_nothing_over() {
    let mut node = Node::start();
    let mut spec = node.spec("c", &["true"]);
    spec.process.as_mut().expect("process").cwd = "nowhere".into();
    let output = node.output("c");
    let failure = node.create_with("c", spec, output).err().expect("refused");
    assert_eq!(failure.kind, FailureKind::Invalid, "{failure}");
    assert!(failure.message.contains("process.cwd"), "{failure}");
    let mut spec = node.spec("c", &["true"]);
    spec.mounts.push(oci::Mount { destination: "/x".into(), kind: Some("nosuchfs".into()), ..Default::default() });
    let output = node.output("c");
    let failure = node.create_with("c", spec, output).err().expect("refused");
    assert!(failure.message.contains("nosuchfs"), "{failure}");
    assert!(node.inventory().is_empty());
    node.create("c", &["true"]);
    let (spec, output) = (node.spec("c", &["true"]), node.output("c"));
    let again = node.create_with("c", spec, output).err().expect("refused");
    assert_eq!(again.kind, FailureKind::AlreadyExists);
    node.delete("c");
    node.end();
}

#[test]
fn a_created_container_can_be_killed_and_deleted_before_its_start() {
    let mut node = Node::start();
    node.create("a", &["true"]);
    node.kill(Target::Container("a".into()), 9, KillScope::Init).expect("kill");
    assert_eq!(node.wait("a").signal, Some(9));
    let failure = node.kill(Target::Container("a".into()), 15, KillScope::Init).expect_err("it has exited");
    assert_eq!(failure.kind, FailureKind::NotFound);
    assert_eq!(node.start_container("a").expect_err("it has exited").kind, FailureKind::State);
    node.delete("a");
    node.create("b", &["true"]);
    node.delete("b");
    assert!(node.inventory().is_empty());
    node.end();
}

#[test]
fn signals_reach_the_first_process_or_all() {
    let mut node = Node::start();
    node.shell("c", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done");
    node.wait_for_entry("c", "stdout F ready");
    node.kill(Target::Container("c".into()), 15, KillScope::Init).expect("kill");
    assert_eq!(node.wait("c").code, Some(3));
    node.delete("c");
    node.run("d", &["sleep", "1000"]);
    node.kill(Target::Container("d".into()), 9, KillScope::All).expect("kill");
    let status = node.wait("d");
    assert_eq!((status.code, status.signal), (Some(137), Some(9)));
    node.delete("d");
    node.end();
}

#[test]
fn a_running_container_is_killed_by_delete() {
    let mut node = Node::start();
    node.run("c", &["sleep", "1000"]);
    node.delete("c");
    assert!(node.inventory().is_empty());
    node.end();
}

#[test]
fn a_terminal_is_logged_and_resized_and_sent_to_the_daemon() {
    let mut node = Node::start();
    let mut spec = node.spec("c", &["sh", "-c", "tty; read x; stty size; echo got $x"]);
    spec.process.as_mut().expect("process").terminal = true;
    let log = Attachments::new().with(Role::Log, node.open_log("c"));
    let held = node.create_with("c", spec, log).expect("create");
    node.start_container("c").expect("start");
    let size = oci::TerminalSize { width: 91, height: 17 };
    let resize = Request::ResizeTerminal { target: Target::Container("c".into()), size };
    node.request(resize, Attachments::new()).expect("resize");
    rustix::io::write(held.terminal.as_ref().expect("a master side").as_fd(), b"hello\n").expect("type");
    assert_eq!(node.wait("c").code, Some(0));
    let text: String = node
        .log("c")
        .iter()
        .map(|l| l["stdout F ".len()..].to_owned() + if l.contains(" F ") { "\n" } else { "" })
        .collect();
    assert!(text.contains("/dev/pts/0") && text.contains("17 91\r") && text.contains("got hello\r"), "{text:?}");
    node.delete("c");
    node.end();
}

#[test]
fn remaining_processes_are_killed_when_a_container_in_the_host_pid_namespace_exits() {
    let mut node = Node::start();
    let mut spec = node.spec("c", &["sh", "-c", "sleep 1000 & echo started; exit 4"]);
    spec.linux.as_mut().expect("linux").namespaces.retain(|ns| ns.kind != oci::NamespaceType::Pid);
    let output = node.output("c");
    node.create_with("c", spec, output).expect("create");
    node.start_container("c").expect("start");
    assert_eq!(node.wait("c").code, Some(4));
    assert_eq!(node.log("c"), ["stdout F started"]);
    node.delete("c");
    node.end();
}

#[test]
fn an_oom_kill_is_reported() {
    let mut node = Node::start();
    let mut spec = node.spec("c", &["sh", "-c", "dd if=/dev/zero of=/dev/null bs=200M count=1 2>/dev/null"]);
    let limits = serde_json::json!({ "memory": { "limit": 16 << 20, "swap": 16 << 20 } });
    spec.linux.as_mut().expect("linux").resources = Some(serde_json::from_value(limits).expect("resources"));
    let output = node.output("c");
    node.create_with("c", spec, output).expect("create");
    node.start_container("c").expect("start");
    let status = node.wait("c");
    assert_eq!((status.code, status.oom_killed), (Some(137), true));
    node.delete("c");
    node.end();
}

#[test]
fn a_daemon_of_another_major_version_is_refused() {
    let mut node = Node::start();
    let hello = Request::Hello { major: monitor_api::MAJOR + 1, minor: 0 };
    let failure = node.request(hello, Attachments::new()).expect_err("refused");
    assert_eq!(failure.kind, FailureKind::Version);
    node.end();
}

#[test]
fn invalid_ids_are_refused() {
    let mut node = Node::start();
    for id in ["", "../x", "a b", &"x".repeat(129)] {
        let spec = node.spec("c", &["true"]);
        let failure = node.create_with(id, spec, Attachments::new()).err().expect("refused");
        assert_eq!(failure.kind, FailureKind::Invalid, "{id:?}");
    }
    node.end();
}

#[test]
fn a_ping_is_answered_at_once() {
    let mut node = Node::start();
    let (reply, _) = node.request(Request::Ping, Attachments::new()).expect("ping");
    assert!(matches!(&reply, monitor_api::Reply::Pong(pong) if pong.stuck.is_empty()), "{reply:?}");
    node.end();
}

/// The tmpfs of the state directory is full, or the reader of standard error is gone.
#[test]
fn messages_that_cannot_be_written_do_not_end_the_monitor() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("open /dev/full");
    let (reader, closed) = std::io::pipe().expect("pipe");
    drop(reader);
    let (unread, stuck) = std::io::pipe().expect("pipe");
    for stderr in [full, fs::File::from(OwnedFd::from(closed)), fs::File::from(OwnedFd::from(stuck))] {
        let mut node = Node::start_with_stderr(stderr);
        node.run("c", &["sleep", "1000"]);
        for _ in 0..1000 {
            // Each signal is ignored, with a message.
            rustix::process::kill_process(node.monitor, rustix::process::Signal::TERM).expect("signal");
            node.inventory();
        }
        node.delete("c");
        node.end();
    }
    drop(unread);
}
