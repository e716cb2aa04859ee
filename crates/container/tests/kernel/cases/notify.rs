//! Seccomp agents, and system calls that are passed to them.

use std::{
    io::{IoSliceMut, Read},
    mem::MaybeUninit,
    os::unix::net::{UnixListener, UnixStream},
};

use container::{ExecFilter, Progress, SeccompAgent};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::{AsFd, OwnedFd},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};
use serde_json::{Value, json};
use syscall::seccomp::Response;

use crate::{
    Case, bundle,
    node::{Node, Outcome, Output, next, reap},
};

pub(crate) const CASES: &[Case] = testbed::cases![
    an_agent_answers,
    every_call_is_notified,
    almost_no_call_is_allowed,
    execs_have_an_agent_too,
    an_agent_that_does_not_exist,
    an_agent_that_disconnected,
    no_agent,
];

const MKDIR: [(&str, &str); 2] = [("mkdir", "SCMP_ACT_NOTIFY"), ("mkdirat", "SCMP_ACT_NOTIFY")];
const SOCKET: &str = "/agent.sock";

/// A seccomp agent that receives one listener.
struct TestAgent {
    socket: UnixListener,
}

impl TestAgent {
    fn new() -> Self {
        Self { socket: UnixListener::bind(SOCKET).expect("bind") }
    }

    /// Receives the message and the listener.
    fn receive(&self) -> (Value, OwnedFd) {
        let (mut stream, _) = self.socket.accept().expect("accept");
        let mut data = vec![0; 64 << 10];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(&stream, &mut [IoSliceMut::new(&mut data)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        data.truncate(got.expect("recvmsg").bytes);
        let listener = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        stream.read_to_end(&mut data).expect("the rest");
        (serde_json::from_slice(&data).expect("JSON"), listener.expect("a listener"))
    }
}

impl Drop for TestAgent {
    fn drop(&mut self) {
        std::fs::remove_file(SOCKET).expect("remove the socket");
    }
}

/// Answers until the process has exited; returns the numbers of the system calls. Before Linux 6.11 the listener
/// reports the exit only once the process is reaped, so the pidfd is polled too.
fn serve(listener: &OwnedFd, process: &OwnedFd, answer: impl Fn(i32) -> Response) -> Vec<i32> {
    let mut calls = Vec::new();
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(process, PollFlags::IN)];
        poll(&mut fds, None).expect("poll");
        if !fds[0].revents().contains(PollFlags::IN) {
            return calls;
        }
        let call = syscall::seccomp::receive(listener).expect("receive");
        calls.push(call.call);
        syscall::seccomp::respond(listener, &call, answer(call.call)).expect("answer");
    }
}

fn profile(default: &str, rules: &[(&str, &str)]) -> oci::Seccomp {
    let rules: Vec<Value> = rules.iter().map(|(name, action)| json!({"names": [name], "action": action})).collect();
    let profile =
        json!({"defaultAction": default, "syscalls": rules, "listenerPath": SOCKET, "listenerMetadata": "metadata"});
    serde_json::from_value(profile).expect("a profile")
}

/// Runs a script with a profile, whose agent answers; returns its outcome, the message to the agent and the system
/// calls.
fn run_with_agent(
    node: &Node,
    script: &str,
    profile: oci::Seccomp,
    answer: impl Fn(i32) -> Response,
) -> (Outcome, Value, Vec<i32>) {
    let agent = TestAgent::new();
    let mut spec = bundle::spec(&["/bin/sh", "-c", script]);
    spec.linux.as_mut().expect("linux").seccomp = Some(profile);
    let mut inputs = node.inputs();
    inputs.invocation.state = state();
    let output = Output::new(&mut inputs.stdio);
    let (mut setup, _) = node.create(spec, inputs).expect("created");
    setup.start().expect("started");
    let (message, listener) = agent.receive();
    assert_eq!(
        (&message["pid"], &message["state"]["pid"]),
        (&json!(setup.pid.as_raw_pid()), &json!(setup.pid.as_raw_pid()))
    );
    let calls = serve(&listener, &setup.pidfd, answer);
    assert!(matches!(next(&mut setup), Ok(Progress::Executed)));
    let outcome = output.collect(&setup);
    setup.group.remove().expect("the group is empty");
    (outcome, message, calls)
}

fn state() -> oci::State {
    oci::State { oci_version: "1.3.0".into(), id: "web".into(), bundle: "/bundle".into(), ..Default::default() }
}

fn an_agent_answers(node: &Node) {
    let profile = profile("SCMP_ACT_ALLOW", &MKDIR);
    let (out, message, calls) = run_with_agent(node, "mkdir /new", profile, |_| Response::Fail(libc::EXDEV));
    assert_eq!((out.code, calls.len()), (1, 1), "{out:?}");
    assert!(out.stderr.contains("Invalid cross-device link"), "{out:?}");
    let expected = json!({
        "ociVersion": "1.3.0", "fds": ["seccompFd"], "pid": message["pid"], "metadata": "metadata",
        "state": {"ociVersion": "1.3.0", "id": "web", "status": "created", "pid": message["pid"], "bundle": "/bundle"},
    });
    assert_eq!(message, expected);
}

/// All system calls, including execve and write: the agent has the listener before the first one.
fn every_call_is_notified(node: &Node) {
    let (out, _, calls) = run_with_agent(node, "echo all", profile("SCMP_ACT_NOTIFY", &[]), |_| Response::Continue);
    assert_eq!((out.stdout.as_str(), out.code), ("all", 0), "{out:?}");
    assert_eq!(calls[0], libc::SYS_execve as i32, "{calls:?}");
    assert!(calls.contains(&(libc::SYS_write as i32)));
}

/// The process may make none of the system calls that sending the listener takes.
fn almost_no_call_is_allowed(node: &Node) {
    let profile = profile(
        "SCMP_ACT_KILL_PROCESS",
        &[("execve", "SCMP_ACT_ALLOW"), ("brk", "SCMP_ACT_NOTIFY"), ("arch_prctl", "SCMP_ACT_NOTIFY")],
    );
    let (out, _, calls) = run_with_agent(node, "true", profile, |_| Response::Continue);
    assert_eq!(out.code, 128 + libc::SIGSYS, "{out:?} {calls:?}");
    assert!(!calls.is_empty(), "its program made notified calls before it was killed");
}

fn execs_have_an_agent_too(node: &Node) {
    let (mut target, _) = node.create(bundle::spec(&["/bin/sleep", "99"]), node.inputs()).expect("created");
    target.start().and_then(|()| next(&mut target)).expect("started");
    let agent = TestAgent::new();
    let program = seccomp::compile(&profile("SCMP_ACT_ALLOW", &MKDIR)).expect("compiles");
    let state = oci::State { status: oci::Status::Running, pid: target.pid.as_raw_pid(), ..state() };
    let seccomp_agent = SeccompAgent { path: SOCKET.into(), metadata: String::new(), state };
    let filter = ExecFilter { program: &program, agent: Some(&seccomp_agent) };
    let mut stdio = container::Stdio::default();
    let output = Output::new(&mut stdio);
    let group = target.group.exec_group("web").expect("exec group");
    let process = bundle::process(&["mkdir", "/dev/shm/new"]);
    let mut exec = container::exec(group, target.pidfd.as_fd(), &process, stdio, Some(filter)).expect("exec");
    assert!(matches!(next(&mut exec), Ok(Progress::Ready { .. })));
    let (message, listener) = agent.receive();
    assert_eq!(
        (&message["pid"], &message["state"]["pid"]),
        (&json!(exec.pid.as_raw_pid()), &json!(target.pid.as_raw_pid()))
    );
    assert_eq!(message["state"]["status"], "running");
    let calls = serve(&listener, &exec.pidfd, |_| Response::Fail(libc::EACCES));
    let out = output.collect(&exec);
    assert_eq!((calls.len(), out.code), (1, 1), "{out:?}");
    exec.group.remove().expect("removed");
    node.end(target);
}

fn an_agent_that_does_not_exist(node: &Node) {
    let mut spec = bundle::spec(&["/bin/true"]);
    spec.linux.as_mut().expect("linux").seccomp = Some(profile("SCMP_ACT_ALLOW", &[("uname", "SCMP_ACT_NOTIFY")]));
    let plan = container::Plan::new(&with_group(node, spec), node.inputs()).expect("a plan");
    let error = container::create(&node.trees, plan).expect_err("no agent listens");
    assert_eq!(error.message(), "connect to the seccomp agent \"/agent.sock\": No such file or directory");
}

fn with_group(node: &Node, mut spec: oci::Spec) -> oci::Spec {
    let path = node.parent.join("no-agent").expect("path").as_str().to_owned();
    spec.linux.as_mut().expect("linux").cgroups_path = Some(path);
    spec
}

fn an_agent_that_disconnected(node: &Node) {
    let agent = TestAgent::new();
    let mut spec = bundle::spec(&["/bin/true"]);
    spec.linux.as_mut().expect("linux").seccomp = Some(profile("SCMP_ACT_ALLOW", &[("uname", "SCMP_ACT_NOTIFY")]));
    let (mut setup, _) = node.create(spec, node.inputs()).expect("created");
    let (connection, _): (UnixStream, _) = agent.socket.accept().expect("accept");
    drop(connection);
    setup.start().expect("started");
    let error = next(&mut setup).expect_err("the agent disconnected");
    assert_eq!(error.message(), "reach the seccomp agent \"/agent.sock\": it hung up: Broken pipe");
    reap(&setup);
    setup.group.remove().expect("removed");
}

fn no_agent(node: &Node) {
    for path in [None, Some(String::new()), Some("agent.sock".to_owned())] {
        let mut spec = bundle::spec(&["/bin/true"]);
        let profile = profile("SCMP_ACT_ALLOW", &[("uname", "SCMP_ACT_NOTIFY")]);
        spec.linux.as_mut().expect("linux").seccomp = Some(oci::Seccomp { listener_path: path, ..profile });
        let error = container::Plan::new(&with_group(node, spec), node.inputs()).expect_err("no agent");
        assert!(error.message().contains("listenerPath"), "{error}");
    }
}
