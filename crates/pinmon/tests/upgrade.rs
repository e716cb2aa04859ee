//! Upgrades of the monitor while containers write.
//!
//! The monitor must be the static release build: its mount namespace has no dynamic loader.

mod node;

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use monitor_api::{Attach, Attachments, Failure, FailureKind, KillScope, Reply, Request, Role, Target};
use node::{Node, PATIENCE};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use testbed::wait_until;

fn program() -> PathBuf {
    std::env::var_os("PINMON").map_or_else(|| testbed::program("pinmon"), PathBuf::from)
}

fn start() -> Node {
    Node::start_program(&program())
}

fn upgrade_to(node: &mut Node, program: &PathBuf) -> Result<Reply, Failure> {
    let file = File::open(program).expect("a program");
    node.request(Request::Upgrade, Attachments::new().with(Role::Program, file.into())).map(|(reply, _)| reply)
}

fn upgrade(node: &mut Node) {
    let pid = node.monitor.as_raw_nonzero().get().unsigned_abs();
    match upgrade_to(node, &program()) {
        Ok(Reply::Welcome(welcome)) => assert_eq!(welcome.pid, pid, "the same process"),
        other => panic!("unexpected: {other:?}\n{}", node.diagnostics()),
    }
}

/// Asserts that the lines of a log are the numbers `1..=last` in order, each once. Lines that were written in parts are
/// joined.
fn assert_numbered(node: &Node, id: &str, last: u32) {
    let (mut numbers, mut parts) = (Vec::<u32>::new(), String::new());
    for line in node.log(id) {
        let (tag, part) = line.strip_prefix("stdout ").and_then(|rest| rest.split_once(' ')).expect("tag and text");
        parts.push_str(part);
        if tag == "F" {
            numbers.push(std::mem::take(&mut parts).parse().expect("a number"));
        }
    }
    assert_eq!(parts, "");
    assert!(numbers.iter().copied().eq(1..=last), "{} lines, not {last}", numbers.len());
}

#[test]
fn no_line_is_lost_or_doubled_under_repeated_upgrades() {
    let mut node = start();
    for id in ["a", "b"] {
        node.run(id, &["seq", "1", "300000"]);
    }
    node.run("c", &["sh", "-c", "trap 'exit 4' TERM; while :; do sleep 0.01; done"]);
    let (mut reader, writer) = std::io::pipe().expect("pipe");
    let process = node.spec("c", &["sh", "-c", "read -r l; echo got $l; exit 6"]).process.expect("a process");
    let (stdin, feed) = std::io::pipe().expect("pipe");
    let attached = Attachments::new().with(Role::Stdout, writer.into()).with(Role::Stdin, stdin.into());
    node.exec_with("c", "e", process, attached).expect("exec");
    let before = node.descriptors();
    for _ in 0..20 {
        upgrade(&mut node);
    }
    std::io::Write::write_all(&mut { feed }, b"it\n").expect("write");
    let mut output = String::new();
    reader.read_to_string(&mut output).expect("read");
    assert_eq!(output, "got it\n");
    let mut ends = Vec::new();
    let mut exec = None;
    while ends.len() < 2 || exec.is_none() {
        match node.event() {
            monitor_api::Event::Exited { container, status } => ends.push((container, status.code)),
            monitor_api::Event::ExecExited { status, .. } => exec = status.code,
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert_eq!(exec, Some(6));
    ends.sort();
    assert_eq!(ends, [("a".to_owned(), Some(0)), ("b".to_owned(), Some(0))]);
    for id in ["a", "b"] {
        assert_numbered(&node, id, 300_000);
        node.delete(id);
    }
    node.kill(Target::Container("c".into()), libc::SIGTERM, KillScope::Init).expect("kill");
    assert_eq!(node.wait("c").code, Some(4));
    node.delete("c");
    assert!(node.descriptors() < before, "upgrades leaked descriptors");
    node.end();
}

#[test]
fn created_and_exited_containers_are_unchanged() {
    let mut node = start();
    let held = node.create("waits", &["sh", "-c", "echo ran; exit 5"]);
    node.run("ended", &["sh", "-c", "exit 3"]);
    assert_eq!(node.wait("ended").code, Some(3));
    node.create("tapped", &["sh", "-c", "read -r l; echo done"]);
    let (mut out, tap) = std::io::pipe().expect("pipe");
    let attach = Request::Attach(Attach { container: "tapped".into() });
    node.request(attach, Attachments::new().with(Role::Stdout, tap.into())).expect("attach");
    let kept = Attachments::new().with(Role::Kept(0), File::open("/dev/null").expect("open").into());
    node.request(Request::Keep { key: "k".into() }, kept).expect("keep");
    let open = node.descriptors();
    upgrade(&mut node);
    upgrade(&mut node);
    assert_eq!(node.descriptors(), open, "the number of descriptors is unchanged");
    let all = node.inventory();
    assert_eq!(all.keys().map(String::as_str).collect::<Vec<_>>(), ["ended", "k", "tapped", "waits"]);
    assert!(matches!(&all["ended"].0.state, monitor_api::HoldingState::Exited(status) if status.code == Some(3)));
    assert_eq!(all["waits"].0.state, monitor_api::HoldingState::Created);
    assert_eq!(all["k"].1.len(), 1);
    drop(all);
    drop(held);
    node.start_container("waits").expect("start");
    assert_eq!(node.wait("waits").code, Some(5));
    assert_eq!(node.log("waits"), ["stdout F ran"]);
    node.start_container("tapped").expect("start");
    assert_eq!(node.wait("tapped").code, Some(0));
    let mut text = String::new();
    out.read_to_string(&mut text).expect("read");
    assert_eq!(text, "done\n");
    node.request(Request::Release { key: "k".into() }, Attachments::new()).expect("release");
    for id in ["waits", "ended", "tapped"] {
        node.delete(id);
    }
    node.end();
}

fn children(node: &Node) -> impl Iterator<Item = String> {
    let pid = node.monitor.as_raw_nonzero();
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
    list.split_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// Whether the process has a file below this directory open.
fn has_open(pid: &str, below: &Path) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file.starts_with(below))
}

/// A log that hangs: requests that wait for it are answered by this program or by the next one.
#[test]
fn a_log_that_hangs_delays_neither_an_answer_nor_an_exit() {
    const TIME_LIMIT: Duration = Duration::from_secs(10);
    let mut node = start();
    // Declared after the node, so that it is dropped first if the test fails.
    let mut disk = node::disk::Disk::new();
    for id in ["reopened", "ended"] {
        let path = disk.path().join(format!("{id}.log"));
        fs::write(&path, "").expect("a log");
        std::os::unix::fs::symlink(path, node.log_path(id)).expect("a link");
        node.run(id, &["yes"]);
    }
    let log = node.open_log("reopened");
    disk.freeze();
    // The log writer blocks, and the pipes of the containers are full.
    std::thread::sleep(Duration::from_millis(1500));
    let reopen =
        node.send(Request::ReopenLog { container: "reopened".into() }, &Attachments::new().with(Role::Log, log));
    let begin = Instant::now();
    node.kill(Target::Container("ended".into()), libc::SIGKILL, KillScope::All).expect("kill");
    upgrade(&mut node);
    let upgraded = Instant::now();
    node.answer(reopen).expect("reopened");
    assert!(begin.elapsed() < TIME_LIMIT, "{:?}", begin.elapsed());
    assert_eq!(node.wait("ended").signal, Some(9));
    let waited = upgraded.elapsed();
    assert!(waited > Duration::from_secs(1), "the new program gave its output no time: {waited:?}");
    let logs = disk.path();
    assert!(children(&node).any(|pid| has_open(&pid, &logs)));
    disk.thaw();
    for id in ["reopened", "ended"] {
        node.delete(id);
    }
    wait_until("no log writer has a log open", PATIENCE, || !children(&node).any(|pid| has_open(&pid, &logs)));
    node.clear_diagnostics();
    node.end();
}

#[test]
fn a_program_that_cannot_take_over_changes_nothing() {
    let mut node = start();
    node.run("c", &["sh", "-c", "echo up; sleep 1000"]);
    let directory = tempfile::tempdir().expect("a directory");
    let make = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
        path
    };
    let program_bytes = fs::read(program()).expect("read");
    for (path, why) in [
        (make("text", b"no program"), "does not start"),
        (make("cut", &program_bytes[..4096]), ""),
        (PathBuf::from("/bin/busybox"), "refuses: applet not found"),
    ] {
        let open = node.descriptors();
        let failure = upgrade_to(&mut node, &path).expect_err("it must not take over");
        assert_eq!(failure.kind, FailureKind::State, "{failure}");
        assert!(failure.message.contains(why) && failure.message.ends_with(" keeps running"), "{failure}");
        assert_eq!(node.descriptors(), open, "{failure}");
    }
    node.exec("c", "e", &["true"]).expect("exec after the failed upgrade");
    assert_eq!(node.wait_exec("e").code, Some(0));
    upgrade(&mut node);
    node.delete("c");
    assert_eq!(node.log("c"), ["stdout F up"]);
    node.end();
}

#[test]
fn a_program_that_fails_after_its_check_returns_to_the_previous_one() {
    let mut node = start();
    node.run("c", &["sh", "-c", "echo up; sleep 1000"]);
    let mut kept = Attachments::new();
    for n in 0..40 {
        kept.push(Role::Kept(n), File::open("/dev/null").expect("open").into());
    }
    node.request(Request::Keep { key: "k".into() }, kept).expect("keep");
    // Room for the check, but not for duplicates of all descriptors that the new program takes over.
    let open = node.descriptors();
    let limit = getrlimit(Resource::Nofile);
    let narrow = Rlimit { current: Some(open as u64 + 20), maximum: limit.maximum };
    let before = prlimit(Some(node.monitor), Resource::Nofile, narrow).expect("prlimit");
    let file = File::open(program()).expect("a program");
    let answer = node.request(Request::Upgrade, Attachments::new().with(Role::Program, file.into()));
    let failure = answer.expect_err("the descriptor limit is reached");
    assert!(failure.message.contains("take over descriptor"), "{failure}");
    assert!(failure.message.ends_with(" keeps running"), "{failure}");
    prlimit(Some(node.monitor), Resource::Nofile, before).expect("prlimit");
    assert_eq!(node.descriptors(), open);
    node.exec("c", "e", &["true"]).expect("exec after the failed upgrade");
    assert_eq!(node.wait_exec("e").code, Some(0));
    upgrade(&mut node);
    node.request(Request::Release { key: "k".into() }, Attachments::new()).expect("release");
    node.delete("c");
    assert_eq!(node.log("c"), ["stdout F up"]);
    node.end();
}
