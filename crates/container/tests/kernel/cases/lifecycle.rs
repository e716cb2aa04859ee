//! Waiting, starting, adopting, terminals, and exec in a running container.

use std::{fs, io::Read, io::Write};

use container::{ContainerSetup, Progress};
use rustix::fd::{AsFd, OwnedFd};

use crate::{
    Case, bundle,
    node::{Node, Output, next, reap},
};

pub(crate) const CASES: &[Case] = testbed::cases![
    waits_for_its_start,
    exits_when_no_process_can_start_it,
    can_be_adopted,
    started_by_a_monitor_that_died,
    adopted_and_killed,
    killed_before_its_start,
    memory_limit_too_low,
    terminal,
    exec_joins_everything,
    exec_errors,
    exec_with_terminal,
    exec_in_an_ended_container,
    killed_as_a_group,
];

fn sleeper(node: &Node) -> ContainerSetup {
    let (mut setup, _) = node.create(bundle::spec(&["/bin/sleep", "999"]), node.inputs()).expect("created");
    setup.start().expect("started");
    assert!(matches!(next(&mut setup), Ok(Progress::Executed)));
    setup
}

fn name_of(pid: rustix::process::Pid) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).expect("comm").trim_end().to_owned()
}

fn waits_for_its_start(node: &Node) {
    let (mut setup, _) = node.create(bundle::spec(&["/bin/sleep", "999"]), node.inputs()).expect("created");
    assert_ne!(name_of(setup.pid), "sleep");
    assert!(matches!(setup.advance(), Ok(Progress::Pending)));
    setup.start().expect("started");
    assert!(matches!(next(&mut setup), Ok(Progress::Executed)));
    assert_eq!(name_of(setup.pid), "sleep");
    node.end(setup);
}

fn exits_when_no_process_can_start_it(node: &Node) {
    let (setup, _) = node.create(bundle::spec(&["/bin/sleep", "999"]), node.inputs()).expect("created");
    let pidfd = setup.pidfd.try_clone().expect("duplicate");
    let group = cgroup::Group::open(&node.trees, setup.group.path()).expect("group");
    drop(setup);
    let id = rustix::process::WaitId::PidFd(pidfd.as_fd());
    let status = rustix::process::waitid(id, rustix::process::WaitIdOptions::EXITED).expect("waitid").expect("status");
    assert_eq!(status.exit_status(), Some(0));
    group.remove().expect("removed");
}

fn can_be_adopted(node: &Node) {
    let (setup, _) = node.create(bundle::spec(&["/bin/sleep", "999"]), node.inputs()).expect("created");
    let (pid, pidfd) = (setup.pid, setup.pidfd.try_clone().expect("duplicate"));
    let sync = setup.sync().try_clone_to_owned().expect("duplicate");
    let path = setup.group.path().clone();
    drop(setup);
    let group = cgroup::Group::open(&node.trees, &path).expect("group");
    let mut adopted = ContainerSetup::adopt(pid, pidfd, sync, group);
    assert!(matches!(adopted.advance(), Ok(Progress::Pending)));
    adopted.start().expect("started");
    assert!(matches!(next(&mut adopted), Ok(Progress::Executed)));
    assert_eq!(name_of(pid), "sleep");
    node.end(adopted);
}

/// The monitor died between the start byte and the end of file: its successor sees only the latter.
fn started_by_a_monitor_that_died(node: &Node) {
    let (mut setup, _) = node.create(bundle::spec(&["/bin/sleep", "999"]), node.inputs()).expect("created");
    let (pid, pidfd) = (setup.pid, setup.pidfd.try_clone().expect("duplicate"));
    let sync = setup.sync().try_clone_to_owned().expect("duplicate");
    setup.start().expect("started");
    let group = cgroup::Group::open(&node.trees, setup.group.path()).expect("group");
    drop(setup);
    let mut adopted = ContainerSetup::adopt(pid, pidfd, sync, group);
    assert!(matches!(next(&mut adopted), Ok(Progress::Executed)));
    node.end(adopted);
}

fn adopted_and_killed(node: &Node) {
    let (setup, _) = node.create(bundle::spec(&["/bin/sleep", "999"]), node.inputs()).expect("created");
    let (pid, pidfd) = (setup.pid, setup.pidfd.try_clone().expect("duplicate"));
    let sync = setup.sync().try_clone_to_owned().expect("duplicate");
    let group = cgroup::Group::open(&node.trees, setup.group.path()).expect("group");
    drop(setup);
    let mut adopted = ContainerSetup::adopt(pid, pidfd, sync, group);
    adopted.group.kill().expect("kill");
    assert!(next(&mut adopted).is_err(), "it never executed anything");
    reap(&adopted);
    adopted.group.remove().expect("removed");
}

fn killed_before_its_start(node: &Node) {
    let (mut setup, _) = node.create(bundle::spec(&["/bin/sleep", "999"]), node.inputs()).expect("created");
    setup.group.kill().expect("kill");
    let error = next(&mut setup).expect_err("it has exited");
    assert!(error.message().contains("before it could execute its command"), "{error}");
    assert_eq!(reap(&setup), 137);
    setup.group.remove().expect("removed");
}

/// A memory limit that no process can run in is reported as such, by the creation or by the program.
fn memory_limit_too_low(node: &Node) {
    let mut spec = bundle::spec(&["/bin/true"]);
    let resources = spec.linux.as_mut().expect("linux").resources.get_or_insert_default();
    resources.memory.get_or_insert_default().limit = Some(4096);
    match node.create(spec, node.inputs()) {
        Err(error) => assert!(error.message().contains("its memory limit is too low"), "{error}"),
        Ok((mut setup, _)) => {
            setup.start().expect("started");
            // It is killed in execve, which shows in the exit status or in the error of execve.
            let _ = next(&mut setup);
            assert_ne!(reap(&setup), 0);
            setup.group.remove().expect("removed");
        }
    }
}

fn talk(master: OwnedFd, input: &str) -> String {
    let mut master = fs::File::from(master);
    master.write_all(input.as_bytes()).expect("type");
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    // When the last slave is closed, the read fails with EIO.
    while let Ok(count @ 1..) = master.read(&mut buffer) {
        text.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8_lossy(&text).replace('\r', "")
}

fn terminal(node: &Node) {
    let script = "tty; stty size; test -c /dev/console && echo console; stat -c '%t:%T' /dev/pts/0 /dev/console; read line; echo got $line";
    let mut spec = bundle::spec(&["/bin/sh", "-c", script]);
    let process = spec.process.as_mut().expect("process");
    process.terminal = true;
    process.console_size = Some(oci::TerminalSize { height: 33, width: 99 });
    let (mut setup, terminal) = node.create(spec, node.inputs()).expect("created");
    setup.start().expect("started");
    assert!(matches!(next(&mut setup), Ok(Progress::Executed)));
    let text = talk(terminal.expect("a terminal"), "typed\n");
    // The echo of the input may be anywhere in the output.
    let answers = text.replacen("typed\n", "", 1);
    assert!(answers.contains("/dev/pts/0\n33 99\nconsole\n88:0\n88:0\n"), "{text:?}");
    assert!(text.contains("got typed"), "{text:?}");
    assert_eq!(reap(&setup), 0);
    setup.group.remove().expect("removed");
}

fn exec_joins_everything(node: &Node) {
    let target = sleeper(node);
    let script = "for k in pid net ipc uts mnt cgroup; do [ $(readlink /proc/self/ns/$k) = $(readlink /proc/1/ns/$k) ] || echo $k; done; \
                  ls /proc/self/fd | tr '\\n' ' '; hostname; grep -E 'CapEff|CapBnd|NoNew' /proc/self/status | cut -f2; \
                  touch /x 2>/dev/null || echo ro; id -u; ulimit -n; cat /proc/self/oom_score_adj; pwd; echo $HOME; exit 5";
    let mut process = bundle::process(&["sh", "-c", script]);
    process.cwd = "/tmp".into();
    let out = node.exec(&target, &process).expect("exec");
    let expected = "0 1 2 3 inside\n00000000a80425fb\n00000000a80425fb\n1\nro\n0\n1024\n100\n/tmp\n/root";
    assert_eq!((out.stdout.as_str(), out.code), (expected, 5), "{}", out.stderr);
    let group = node.exec(&target, &bundle::process(&["cat", "/proc/1/cgroup", "/proc/self/cgroup"])).expect("exec");
    for line in group.stdout.lines() {
        let path = line.rsplit(':').next().expect("a path");
        assert!(path == "/" || path.starts_with("/exec"), "in the container's groups: {line}");
    }
    node.end(target);
}

fn exec_errors(node: &Node) {
    let target = sleeper(node);
    let error = node.exec(&target, &bundle::process(&["nginxx"])).expect_err("not there");
    assert_eq!(error.message(), "exec \"nginxx\": executable file not found in $PATH (/usr/bin:/bin)");
    let mut process = bundle::process(&["true"]);
    process.cwd = "/none".into();
    let error = node.exec(&target, &process).expect_err("no such directory");
    assert_eq!(error.message(), "enter the working directory \"/none\": No such file or directory");
    assert_eq!(node.exec(&target, &bundle::process(&["true"])).expect("exec").code, 0);
    node.end(target);
}

fn exec_with_terminal(node: &Node) {
    let target = sleeper(node);
    let mut process = bundle::process(&["sh", "-c", "tty; read line; echo got $line"]);
    process.terminal = true;
    let group = target.group.exec_group("terminal").expect("exec group");
    let stdio = container::Stdio::default();
    let mut setup = container::exec(group, target.pidfd.as_fd(), &process, stdio, None).expect("exec");
    let Ok(Progress::Ready { terminal: Some(master) }) = next(&mut setup) else { panic!("no terminal") };
    assert!(matches!(next(&mut setup), Ok(Progress::Executed)));
    let text = talk(master, "typed\n");
    assert!(text.contains("/dev/pts/0") && text.contains("got typed"), "{text:?}");
    assert_eq!(reap(&setup), 0);
    setup.group.remove().expect("removed");
    node.end(target);
}

fn exec_in_an_ended_container(node: &Node) {
    let target = sleeper(node);
    target.group.kill().expect("kill");
    reap(&target);
    let error = node.exec(&target, &bundle::process(&["true"])).expect_err("it has exited");
    assert!(error.message().contains("not running"), "{error}");
    target.group.remove().expect("removed");
}

fn killed_as_a_group(node: &Node) {
    let mut spec = bundle::spec(&["/bin/sh", "-c", "sleep 99 & setsid sleep 99 & echo up; wait"]);
    spec.process.as_mut().expect("process").args[0] = "sh".into();
    let mut inputs = node.inputs();
    let output = Output::new(&mut inputs.stdio);
    let (mut setup, _) = node.create(spec, inputs).expect("created");
    setup.start().expect("started");
    next(&mut setup).expect("executed");
    setup.group.kill().expect("kill");
    assert_eq!(output.collect(&setup).code, 137);
    setup.group.remove().expect("the group is empty");
}
