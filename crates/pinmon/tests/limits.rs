//! Limits of the kernel that containers can use up, and a monitor that works on.

mod node;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    time::{Duration, Instant},
};

use monitor_api::{Attach, Attachments, KillScope, Reply, Request, Role, Target};
use node::Node;
use rustix::mount::OpenTreeFlags;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};

/// What is asked of a monitor may take so long on a machine under load.
const PROMPT: Duration = Duration::from_secs(10);

/// Children of the monitor that ended and were not reaped.
fn zombies(node: &Node) -> usize {
    let pid = node.monitor.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let is_zombie = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z"))
    };
    children.split_whitespace().filter(|pid| is_zombie(pid)).count()
}

#[test]
fn orphans_beyond_those_of_one_turn_are_reaped_without_a_further_signal() {
    const ORPHANS: usize = 700;
    let mut node = Node::start();
    // None may be reaped before the monitor is stopped.
    let script = format!(
        "while [ ! -e /begin ]; do sleep 0.01; done; \
         i=0; while [ $i -lt {ORPHANS} ]; do (sleep 0.1 &); i=$((i+1)); done; echo done; sleep 1000"
    );
    let mut spec = node.spec("host", &["sh", "-c", &script]);
    let linux = spec.linux.as_mut().expect("linux");
    linux.namespaces.retain(|namespace| namespace.kind != oci::NamespaceType::Pid);
    let output = node.output("host");
    node.create_with("host", spec, output).expect("create");
    node.start_container("host").expect("start");
    kill_process(node.monitor, Signal::STOP).expect("stop");
    node.put("begin");
    node.eventually("all have ended", |node| zombies(node) >= ORPHANS);
    kill_process(node.monitor, Signal::CONT).expect("continue");
    node.eventually("all are reaped", |node| zombies(node) == 0);
    node.wait_for_entry("host", "stdout F done");
    node.delete("host");
    node.end();
}

/// A monitor whose epoll_ctl(2) fails as where `fs.epoll.max_user_watches` is used up, but for its listener and signals.
fn start_without_watches() -> Node {
    start_with_failing("epoll_ctl", "error=ENOSPC:when=3+")
}

/// A monitor with a system call that fails like this (`--inject` of strace(1)).
fn start_with_failing(call: &str, how: &str) -> Node {
    let directory = tempfile::tempdir().expect("tempdir");
    let script = directory.path().join("pinmon");
    let program = std::env::var("PINMON").unwrap_or_else(|_| env!("CARGO_BIN_EXE_pinmon").to_owned());
    // -D: the tracer is no parent, so that the monitor's own pid is that of this script.
    let text = format!(
        "#!/bin/sh\nexec /usr/bin/strace -D -f -q -o /dev/null -e trace={call} -e inject={call}:{how} {program} \"$@\"\n"
    );
    fs::write(&script, text).expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("chmod");
    let node = Node::start_program(&script);
    drop(directory);
    node
}

#[test]
fn the_group_of_a_command_is_removed_although_the_kernel_had_no_memory_for_a_moment() {
    let mut node = start_with_failing("unlinkat", "error=ENOMEM:when=1..3");
    node.run("c", &["sleep", "1000"]);
    node.exec("c", "e", &["true"]).expect("exec");
    assert_eq!(node.wait_exec("e").code, Some(0));
    node.eventually("the group of the command is removed", |node| !node.has_group("e"));
    node.delete("c");
    node.end();
}

#[test]
fn containers_live_and_are_logged_where_nothing_can_be_watched() {
    if !PathBuf::from("/usr/bin/strace").exists() {
        return;
    }
    let mut node = start_without_watches();
    let begin = Instant::now();
    let script = "echo one; echo error >&2; read -r l; echo two; exit 7";
    let (theirs, ours) = std::io::pipe().expect("pipe");
    let output = node.output("c").with(Role::Stdin, theirs.into());
    let spec = node.spec("c", &["sh", "-c", script]);
    node.create_with("c", spec, output).expect("create");
    node.start_container("c").expect("start");
    node.wait_for_entry("c", "stdout F one");
    node.exec("c", "e", &["sh", "-c", "exit 3"]).expect("exec");
    assert_eq!(node.wait_exec("e").code, Some(3));
    // One that is attached is let go, its container goes on.
    let (_reader, tap) = std::io::pipe().expect("pipe");
    let attach = Request::Attach(Attach { container: "c".into() });
    node.ask(attach, Attachments::new().with(Role::Stdout, tap.into())).expect("attach");
    std::io::Write::write_all(&mut { ours }, b"go\n").expect("write");
    assert_eq!(node.wait("c").code, Some(7));
    let mut log = node.log("c");
    log.sort();
    assert_eq!(log, ["stderr F error", "stdout F one", "stdout F two"]);
    node.delete("c");
    assert!(begin.elapsed() < PROMPT, "{:?}", begin.elapsed());
    assert!(node.diagnostics().contains("looked at every"), "{}", node.diagnostics());
    fs::write(node.state.path().join("pinmon.log"), "").expect("emptied");
    node.end();
}

/// Sends requests without reading an answer, until the monitor has more answers than the socket takes.
fn all_answers_come(node: &mut Node) {
    let asked: Vec<u64> = (0..3000).map(|_| node.send(Request::Ping, &Attachments::new())).collect();
    for seq in asked {
        node.answer(seq).expect("an answer");
    }
    // As at first.
    node.ask(Request::Ping, Attachments::new()).expect("an answer");
}

#[test]
fn a_daemon_that_reads_late_gets_all_answers() {
    let mut node = Node::start();
    all_answers_come(&mut node);
    node.end();
}

#[test]
fn a_daemon_that_reads_late_gets_all_answers_where_nothing_can_be_watched() {
    let mut node = start_without_watches();
    all_answers_come(&mut node);
    fs::write(node.state.path().join("pinmon.log"), "").expect("emptied");
    node.end();
}

/// Runs `work` while the monitor has room for so many more descriptors.
fn with_room<T>(node: &mut Node, room: usize, work: impl FnOnce(&mut Node) -> T) -> T {
    let whose = Some(node.monitor);
    let open = fs::read_dir(format!("/proc/{}/fd", node.monitor.as_raw_nonzero())).expect("it lives").count();
    let maximum = getrlimit(Resource::Nofile).maximum;
    let narrow = Rlimit { current: Some((open + room) as u64), maximum };
    let before = prlimit(whose, Resource::Nofile, narrow).expect("prlimit");
    let done = work(node);
    prlimit(whose, Resource::Nofile, before).expect("prlimit");
    done
}

/// Whatever step it is that finds no room for a further descriptor.
#[test]
fn a_command_that_is_answered_with_an_error_does_not_run() {
    let mut node = Node::start();
    node.run("c", &["sleep", "1000"]);
    let mut failed = 0;
    for room in 0..24 {
        let id = format!("e{room}");
        let mut process = node.spec("c", &["sleep", "1000"]).process.expect("a process");
        process.terminal = true;
        let answer = with_room(&mut node, room, |node| node.exec_with("c", &id, process, Attachments::new()));
        match answer {
            Ok(_) => node.kill(monitor_api::Target::Exec(id), 9, monitor_api::KillScope::All).expect("kill"),
            Err(_) => {
                failed += 1;
                node.eventually("nothing of it runs", |node| !node.has_group(&id));
            }
        }
    }
    assert!(failed > 0, "there was room");
    node.delete("c");
    fs::write(node.state.path().join("pinmon.log"), "").expect("emptied");
    node.end();
}

#[test]
fn a_container_that_is_answered_with_an_error_is_not_there() {
    let mut node = Node::start();
    node.run("other", &["sleep", "1000"]);
    let mut failed = 0;
    for room in 4..28 {
        let id = format!("c{room}");
        let mut spec = node.spec(&id, &["sleep", "1000"]);
        spec.process.as_mut().expect("a process").terminal = true;
        let answer = with_room(&mut node, room, |node| node.create_with(&id, spec, Attachments::new()));
        match answer {
            Ok(_) => node.delete(&id),
            Err(_) => {
                failed += 1;
                node.eventually("nothing of it is left", |node| !node.has_group(&id));
                assert!(!node.inventory().contains_key(&id), "{id} is held");
            }
        }
    }
    assert!(failed > 0, "there was room");
    node.delete("other");
    fs::write(node.state.path().join("pinmon.log"), "").expect("emptied");
    node.end();
}

/// Mounts that come before the `Create` are its own; those of a container that is deleted, or of a connection that closed, are
/// nobody's.
#[test]
fn mounts_before_their_create() {
    let mut node = Node::start();
    let directory = node.state.path().join("volume");
    std::fs::create_dir(&directory).expect("ours");
    std::fs::write(directory.join("file"), "of the node\n").expect("ours");
    let mount = || {
        let flags = rustix::mount::OpenTreeFlags::OPEN_TREE_CLONE | rustix::mount::OpenTreeFlags::OPEN_TREE_CLOEXEC;
        rustix::mount::open_tree(rustix::fs::CWD, &directory, flags).expect("open_tree")
    };
    let spec = |node: &Node, id: &str| {
        let mut spec = node.spec(id, &["cat", "/v/0/file", "/v/1/file"]);
        let first = spec.mounts.len() as u32;
        spec.mounts.extend((0..2).map(|n| oci::Mount {
            destination: format!("/v/{n}"),
            kind: Some("bind".into()),
            options: vec!["bind".into()],
            ..oci::Mount::default()
        }));
        (spec, first)
    };
    let ahead = |node: &mut Node, id: &str, index: u32| {
        let mounts = Attachments::new().with(Role::Mount(index), mount());
        node.ask(Request::Mounts { container: id.into() }, mounts).expect("taken");
    };
    let (with_mounts, first) = spec(&node, "c");
    ahead(&mut node, "c", first);
    ahead(&mut node, "c", first + 1);
    let output = node.output("c");
    node.create_with("c", with_mounts, output).expect("create");
    node.start_container("c").expect("start");
    node.wait_for_entry("c", "stdout F of the node");
    assert_eq!(node.wait("c").code, Some(0));
    node.delete("c");
    let (with_mounts, first) = spec(&node, "d");
    ahead(&mut node, "d", first);
    ahead(&mut node, "d", first + 1);
    node.delete("d");
    let output = node.output("d");
    let failure = node.create_with("d", with_mounts, output).err().expect("its mounts are gone");
    assert!(failure.message.contains("a bind mount needs a source"), "{failure}");

    // Where they have a source, too, it is not used in their place.
    let (mut with_mounts, _) = spec(&node, "e");
    with_mounts.mounts.iter_mut().for_each(|mount| mount.source = Some("/".into()));
    let failure = node.refused_with_mounts("e", with_mounts, Some(2));
    assert!(failure.message.contains("0 of 2 mounts are here"), "{failure}");
    node.end();
}

/// Mounts that no container gets are closed, however many, and no more are taken than a container may have.
#[test]
fn mounts_without_a_create_are_bounded_and_closed() {
    let mut node = Node::start();
    let pid = node.monitor.as_raw_nonzero();
    let open = || fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives").count();
    let before = open();
    let part = |first: u32, count: u32| {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let mount = || rustix::mount::open_tree(rustix::fs::CWD, "/usr", flags).expect("open_tree");
        (first..first + count).fold(Attachments::new(), |all, index| all.with(Role::Mount(index), mount()))
    };
    let mounts = || Request::Mounts { container: "c".into() };
    let most = u32::try_from(monitor_api::MOUNTS_MAX).expect("few");
    for first in (0..most).step_by(128) {
        node.ask(mounts(), part(first, 128)).expect("taken");
    }
    assert!(open() >= before + most as usize);
    let failure = node.ask(mounts(), part(most, 1)).map(|(reply, _)| reply).expect_err("one too many");
    assert!(failure.message.contains("at most 4096"), "{failure}");
    node.eventually("all are closed", |_| open() <= before);
    node.ask(mounts(), part(0, 128)).expect("taken");
    node.delete("c");
    node.eventually("those of a deleted one are closed", |_| open() <= before);
    node.end();
}

/// A file system of the host is mounted by the caller of the library, and may wait for a disk.
#[test]
fn no_file_system_of_the_host_is_mounted() {
    let mut node = Node::start();
    let mut spec = node.spec("c", &["true"]);
    spec.mounts.push(oci::Mount {
        destination: "/v".into(),
        kind: Some("overlay".into()),
        source: Some("overlay".into()),
        options: vec!["lowerdir=/usr:/etc".into()],
        ..oci::Mount::default()
    });
    let failure = node.refused_with_mounts("c", spec, None);
    assert!(failure.message.contains("must be attached"), "{failure}");
    node.end();
}

/// Page faults of all children of the monitor that were reaped (proc_pid_stat(5), field 11): what each process costs at least.
fn faults_of_children(node: &Node) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", node.monitor.as_raw_nonzero())).expect("stat");
    let fields = stat.rsplit(')').next().expect("fields").split_whitespace();
    fields.skip(8).flat_map(str::parse).next().expect("cminflt")
}

#[test]
fn an_inventory_that_is_read_slowly_starts_no_process() {
    let mut node = Node::start();
    let ids: Vec<String> = (0..250).map(|number| format!("c{number}")).collect();
    for id in &ids {
        node.create(id, &["true"]);
    }
    let before = faults_of_children(&node);
    let inventory = node.send(Request::Inventory, &Attachments::new());
    // The socket is full by now, and the rest waits for room in it, again and again.
    std::thread::sleep(Duration::from_millis(300));
    let mut listed = 0;
    while let (Reply::Holding(_), files) = node.answer(inventory).expect("inventory") {
        assert!(files.iter().count() > 3);
        listed += 1;
    }
    assert_eq!(listed, ids.len());
    // Processes that close what was sent would be reaped within this time.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(faults_of_children(&node) - before, 0);
    for id in &ids {
        node.kill(Target::Container(id.clone()), 9, KillScope::All).expect("kill");
        node.wait(id);
        node.delete(id);
    }
    node.end();
}
