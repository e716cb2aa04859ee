//! A seccomp agent, and calls that are asked of it.

use std::{
    io::{IoSliceMut, Read},
    mem::MaybeUninit,
    os::unix::net::{UnixListener, UnixStream},
};

use container::{Agent, ExecFilter, Progress};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::{AsFd, OwnedFd},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};
use serde_json::{Value, json};
use syscall::seccomp::Answer;

use crate::{
    Case, bundle,
    node::{Node, Outcome, Output, next, reap},
};

pub(crate) const CASES: &[Case] = crate::cases![
    an_agent_answers,
    every_call_is_asked,
    hardly_a_call_is_allowed,
    a_command_is_asked_for_too,
    an_agent_that_is_not_there,
    an_agent_that_went_away,
    no_agent,
];

const MKDIR: [(&str, &str); 2] = [("mkdir", "SCMP_ACT_NOTIFY"), ("mkdirat", "SCMP_ACT_NOTIFY")];
const SOCKET: &str = "/agent.sock";

/// Listens, receives one listener and answers.
struct TestAgent {
    socket: UnixListener,
}

impl TestAgent {
    fn new() -> Self {
        Self { socket: UnixListener::bind(SOCKET).expect("bind") }
    }

    /// The message and the listener.
    fn greet(&self) -> (Value, OwnedFd) {
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

/// Answers until the process has ended; the numbers of the calls. Before Linux 6.11 the listener tells of that only
/// when the process was reaped.
fn serve(listener: &OwnedFd, process: &OwnedFd, answer: impl Fn(i32) -> Answer) -> Vec<i32> {
    let mut calls = Vec::new();
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(process, PollFlags::IN)];
        poll(&mut fds, None).expect("poll");
        if !fds[0].revents().contains(PollFlags::IN) {
            return calls;
        }
        let call = syscall::seccomp::receive(listener).expect("receive");
        calls.push(call.call);
        syscall::seccomp::answer(listener, &call, answer(call.call)).expect("answer");
    }
}

fn profile(default: &str, rules: &[(&str, &str)]) -> oci::Seccomp {
    let rules: Vec<Value> = rules.iter().map(|(name, action)| json!({"names": [name], "action": action})).collect();
    let profile =
        json!({"defaultAction": default, "syscalls": rules, "listenerPath": SOCKET, "listenerMetadata": "told"});
    serde_json::from_value(profile).expect("a profile")
}

/// Runs a script under a profile, whose agent answers.
fn asked(
    node: &Node,
    script: &str,
    profile: oci::Seccomp,
    answer: impl Fn(i32) -> Answer,
) -> (Outcome, Value, Vec<i32>) {
    let agent = TestAgent::new();
    let mut spec = bundle::spec(&["/bin/sh", "-c", script]);
    spec.linux.as_mut().expect("linux").seccomp = Some(profile);
    let mut inputs = node.inputs();
    inputs.invocation.state = state();
    let output = Output::new(&mut inputs.stdio);
    let (mut nascent, _) = node.create(spec, inputs).expect("created");
    nascent.start().expect("started");
    let (message, listener) = agent.greet();
    assert_eq!((&message["pid"], &message["state"]["pid"]), (&json!(nascent.pid), &json!(nascent.pid)));
    let calls = serve(&listener, &nascent.pidfd, answer);
    assert!(matches!(next(&mut nascent), Ok(Progress::Executed)));
    let outcome = output.collect(&nascent);
    nascent.group.remove().expect("nothing is left in it");
    (outcome, message, calls)
}

fn state() -> oci::State {
    oci::State { oci_version: "1.3.0".into(), id: "asked".into(), bundle: "/bundle".into(), ..Default::default() }
}

fn an_agent_answers(node: &Node) {
    let profile = profile("SCMP_ACT_ALLOW", &MKDIR);
    let (out, message, calls) = asked(node, "mkdir /new", profile, |_| Answer::Fail(libc::EXDEV));
    assert_eq!((out.code, calls.len()), (1, 1), "{out:?}");
    assert!(out.stderr.contains("Invalid cross-device link"), "{out:?}");
    let expected = json!({
        "ociVersion": "1.3.0", "fds": ["seccompFd"], "pid": message["pid"], "metadata": "told",
        "state": {"ociVersion": "1.3.0", "id": "asked", "status": "created", "pid": message["pid"], "bundle": "/bundle"},
    });
    assert_eq!(message, expected);
}

/// execve and write among them: the agent has the listener before any is asked.
fn every_call_is_asked(node: &Node) {
    let (out, _, calls) = asked(node, "echo all", profile("SCMP_ACT_NOTIFY", &[]), |_| Answer::Continue);
    assert_eq!((out.stdout.as_str(), out.code), ("all", 0), "{out:?}");
    assert_eq!(calls[0], libc::SYS_execve as i32, "{calls:?}");
    assert!(calls.contains(&(libc::SYS_write as i32)));
}

/// Nothing that would send the listener is allowed to the process.
fn hardly_a_call_is_allowed(node: &Node) {
    let profile = profile(
        "SCMP_ACT_KILL_PROCESS",
        &[("execve", "SCMP_ACT_ALLOW"), ("brk", "SCMP_ACT_NOTIFY"), ("arch_prctl", "SCMP_ACT_NOTIFY")],
    );
    let (out, _, calls) = asked(node, "true", profile, |_| Answer::Continue);
    assert_eq!(out.code, 128 + libc::SIGSYS, "{out:?} {calls:?}");
    assert!(!calls.is_empty(), "its program asked before it was killed");
}

fn a_command_is_asked_for_too(node: &Node) {
    let (mut target, _) = node.create(bundle::spec(&["/bin/sleep", "99"]), node.inputs()).expect("created");
    target.start().and_then(|()| next(&mut target)).expect("started");
    let agent = TestAgent::new();
    let program = seccomp::compile(&profile("SCMP_ACT_ALLOW", &MKDIR)).expect("compiles");
    let told = oci::State { status: oci::Status::Running, pid: target.pid, ..state() };
    let told = Agent { path: SOCKET.into(), metadata: String::new(), state: told };
    let filter = ExecFilter { program: &program, agent: Some(&told) };
    let mut stdio = container::Stdio::default();
    let output = Output::new(&mut stdio);
    let group = target.group.exec_group("asked").expect("exec group");
    let process = bundle::process(&["mkdir", "/dev/shm/new"]);
    let mut command = container::exec(group, target.pidfd.as_fd(), &process, stdio, Some(filter)).expect("exec");
    assert!(matches!(next(&mut command), Ok(Progress::Ready { .. })));
    let (message, listener) = agent.greet();
    assert_eq!((&message["pid"], &message["state"]["pid"]), (&json!(command.pid), &json!(target.pid)));
    assert_eq!(message["state"]["status"], "running");
    let calls = serve(&listener, &command.pidfd, |_| Answer::Fail(libc::EACCES));
    let out = output.collect(&command);
    assert_eq!((calls.len(), out.code), (1, 1), "{out:?}");
    command.group.remove().expect("removed");
    node.end(target);
}

fn an_agent_that_is_not_there(node: &Node) {
    let mut spec = bundle::spec(&["/bin/true"]);
    spec.linux.as_mut().expect("linux").seccomp = Some(profile("SCMP_ACT_ALLOW", &[("uname", "SCMP_ACT_NOTIFY")]));
    let plan = container::Plan::new(&with_group(node, spec), node.inputs()).expect("a plan");
    let error = container::create(&node.trees, plan).expect_err("nobody listens");
    assert_eq!(error.message, "connect to the seccomp agent \"/agent.sock\": No such file or directory");
}

fn with_group(node: &Node, mut spec: oci::Spec) -> oci::Spec {
    let path = node.parent.join("no-agent").expect("path").as_str().to_owned();
    spec.linux.as_mut().expect("linux").cgroups_path = Some(path);
    spec
}

fn an_agent_that_went_away(node: &Node) {
    let agent = TestAgent::new();
    let mut spec = bundle::spec(&["/bin/true"]);
    spec.linux.as_mut().expect("linux").seccomp = Some(profile("SCMP_ACT_ALLOW", &[("uname", "SCMP_ACT_NOTIFY")]));
    let (mut nascent, _) = node.create(spec, node.inputs()).expect("created");
    let (gone, _): (UnixStream, _) = agent.socket.accept().expect("accept");
    drop(gone);
    nascent.start().expect("told");
    let error = next(&mut nascent).expect_err("nobody would answer");
    assert_eq!(error.message, "reach the seccomp agent \"/agent.sock\": it hung up: Broken pipe");
    reap(&nascent);
    nascent.group.remove().expect("removed");
}

fn no_agent(node: &Node) {
    for path in [None, Some(String::new()), Some("agent.sock".to_owned())] {
        let mut spec = bundle::spec(&["/bin/true"]);
        let profile = profile("SCMP_ACT_ALLOW", &[("uname", "SCMP_ACT_NOTIFY")]);
        spec.linux.as_mut().expect("linux").seccomp = Some(oci::Seccomp { listener_path: path, ..profile });
        let error = container::Plan::new(&with_group(node, spec), node.inputs()).expect_err("no agent");
        assert!(error.message.contains("listenerPath"), "{error}");
    }
}
