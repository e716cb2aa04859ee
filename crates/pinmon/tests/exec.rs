//! Execs in containers, and the init of pods with a shared PID namespace.

mod node;

use std::io::Read;

use monitor_api::{
    Attachments, CommandError, FailureKind, HoldingState, KillScope, PodInit, Reply, Request, Role, Target,
};
use node::{Node, PATIENCE};
use oci::NamespaceType;
use rustix::fd::OwnedFd;
use testbed::wait_until;

fn pipes() -> (std::io::PipeReader, Attachments) {
    let (reader, writer) = std::io::pipe().expect("pipe");
    (reader, Attachments::new().with(Role::Stdout, writer.into()))
}

#[test]
fn an_exec_runs_in_the_container_and_its_exit_is_reported() {
    let mut node = Node::start();
    node.run("c", &["sleep", "1000"]);
    let (mut reader, attachments) = pipes();
    let process = node
        .spec("c", &["sh", "-c", "echo $$; readlink /proc/1/exe; cat /proc/self/cgroup; exit 9"])
        .process
        .expect("p");
    node.exec_with("c", "e1", process, attachments).expect("exec");
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("read");
    assert!(text.contains("/bin/busybox"), "{text}");
    assert_eq!(node.wait_exec("e1").code, Some(9));
    let failure = node.exec("c", "e2", &["/bin/nope"]).expect_err("no such file");
    assert_eq!((failure.kind, failure.command), (FailureKind::Command, Some(CommandError::NotFound)), "{failure}");
    assert_eq!(failure.operation.as_deref(), Some("exec in container c"));
    assert!(failure.message.contains("/bin/nope"), "{failure}");
    let failure = node.exec("c", "e5", &["/bin"]).expect_err("a directory");
    assert_eq!(failure.command, Some(CommandError::NotExecutable), "{failure}");
    assert_eq!(node.exec("x", "e3", &["true"]).expect_err("no container").kind, FailureKind::NotFound);
    node.exec("c", "e4", &["true"]).expect("exec");
    assert_eq!(node.wait_exec("e4").code, Some(0));
    assert!(!node.groups().iter().any(|path| path.ends_with("e1") || path.ends_with("e2") || path.ends_with("e4")));
    node.delete("c");
    node.end();
}

#[test]
fn short_execs_are_never_lost_between_their_start_and_their_exit() {
    let mut node = Node::start();
    node.run("c", &["sleep", "1000"]);
    for n in 0..300 {
        let id = format!("e{n}");
        node.exec("c", &id, &["true"]).expect("exec");
        assert_eq!(node.wait_exec(&id).code, Some(0));
    }
    for n in 0..30 {
        let id = format!("short{n}");
        node.run(&id, &["true"]);
        assert_eq!(node.wait(&id).code, Some(0));
        node.delete(&id);
    }
    node.delete("c");
    node.end();
}

#[test]
fn an_exec_is_killed_with_all_its_descendants() {
    let mut node = Node::start();
    node.run("c", &["sleep", "1000"]);
    let (mut reader, attachments) = pipes();
    let process = node.spec("c", &["sh", "-c", "sleep 1000 & sleep 1000 & echo up; exit 0"]).process.expect("p");
    node.exec_with("c", "e", process, attachments).expect("exec");
    assert_eq!(node.wait_exec("e").code, Some(0));
    node.kill(Target::Exec("e".into()), 9, KillScope::All).expect("its leftover processes are known");
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("all writers exited");
    assert_eq!(text, "up\n");
    node.delete("c");
    node.end();
}

#[test]
fn leftovers_of_an_exec_are_forgotten_when_they_exit() {
    let mut node = Node::start();
    node.run("c", &["sleep", "1000"]);
    for n in 0..20 {
        let id = format!("e{n}");
        node.exec("c", &id, &["sh", "-c", "sleep 0.2 & exit 0"]).expect("exec");
        assert_eq!(node.wait_exec(&id).code, Some(0));
    }
    assert!(node.has_group("e19"), "its leftovers run in its cgroup");
    wait_until("all cgroups are removed", PATIENCE, || (0..20).all(|n| !node.has_group(&format!("e{n}"))));
    // A completed exec is forgotten, and its id can be used again.
    node.exec("c", "e0", &["true"]).expect("exec");
    assert_eq!(node.wait_exec("e0").code, Some(0));
    node.delete("c");
    node.end();
}

#[test]
fn execs_end_with_the_daemon_and_containers_do_not() {
    let mut node = Node::start();
    node.run("c", &["sleep", "1000"]);
    node.exec("c", "left", &["sh", "-c", "sleep 1000 & exit 0"]).expect("exec");
    assert_eq!(node.wait_exec("left").code, Some(0));
    let (mut reader, attachments) = pipes();
    let process = node.spec("c", &["sleep", "1000"]).process.expect("p");
    node.exec_with("c", "e", process, attachments).expect("exec");
    node.disconnect();
    assert_eq!(reader.read(&mut [0]).expect("read"), 0, "its last writer exited");
    node.connect();
    wait_until("its cgroup is removed", PATIENCE, || !node.has_group("e"));
    assert!(node.has_group("left"), "leftover processes keep running");
    assert_eq!(node.inventory()["c"].0.state, HoldingState::Running);
    node.delete("c");
    node.end();
}

#[test]
fn the_terminal_of_an_exec_belongs_to_the_daemon() {
    let mut node = Node::start();
    node.run("c", &["sleep", "1000"]);
    let mut process = node.spec("c", &["sh", "-c", "tty; read x; echo got $x"]).process.expect("p");
    process.terminal = true;
    let (_, mut files) = node.exec_with("c", "e", process, Attachments::new()).expect("exec");
    let terminal: OwnedFd = files.take(Role::Terminal).expect("a master side");
    rustix::io::write(&terminal, b"hi\n").expect("type");
    assert_eq!(node.wait_exec("e").code, Some(0));
    let (mut text, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(n @ 1..) = rustix::io::read(&terminal, &mut buffer) {
        text.extend_from_slice(&buffer[..n]);
    }
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("/dev/pts/") && text.contains("got hi"), "{text}");
    node.delete("c");
    node.end();
}

#[test]
fn a_pod_with_a_shared_pid_namespace_has_an_init_that_reaps() {
    let mut node = Node::start();
    let init = PodInit { user: None, container: "pod".into(), cgroup: format!("{}/pod", node.cgroup) };
    let (reply, mut files) = node.request(Request::PodInit(init), Attachments::new()).expect("pod init");
    let Reply::PodInitStarted(started) = reply else { panic!("{reply:?}") };
    let namespace = files.take(Role::Namespace(NamespaceType::Pid)).expect("its namespace");
    let proc = format!("/proc/{}", started.pid);
    assert_eq!(std::fs::read_to_string(format!("{proc}/comm")).expect("comm"), "pod-init\n");
    let status = std::fs::read_to_string(format!("{proc}/status")).expect("status");
    let line = |name: &str| status.lines().find(|line| line.starts_with(name)).expect("there").to_owned();
    assert!(line("Uid:").contains("65534") && line("CapBnd:").ends_with("0000000000000000"), "{status}");
    assert_eq!(
        std::fs::read_dir(format!("{proc}/fd"))
            .expect("fds")
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().parse::<u32>().is_ok_and(|n| n > 2))
            .count(),
        0
    );

    let spec = {
        let mut spec = node.spec("c", &["sh", "-c", "(sleep 0.01 &) ; ls /proc/1/root/; ps; echo $$; exit 5"]);
        spec.linux.as_mut().expect("linux").namespaces.retain(|ns| ns.kind != oci::NamespaceType::Pid);
        spec.linux
            .as_mut()
            .expect("linux")
            .namespaces
            .push(oci::Namespace { kind: oci::NamespaceType::Pid, path: None });
        spec
    };
    let output = node.output("c").with(Role::Namespace(NamespaceType::Pid), namespace);
    node.create_with("c", spec, output).expect("create");
    node.start_container("c").expect("start");
    assert_eq!(node.wait("c").code, Some(5));
    let log = node.log("c").join("\n");
    assert!(log.contains("pod-init"), "{log}");
    node.delete("c");
    let inventory = node.inventory();
    assert_eq!(inventory["pod"].0.state, HoldingState::PodInit);
    drop(inventory);
    node.kill(Target::Container("pod".into()), 15, KillScope::Init).expect("kill");
    assert_eq!(node.wait("pod").code, Some(0));
    node.delete("pod");
    node.end();
}
