//! Kernel limits that containers can exhaust, and a monitor that keeps working.

mod node;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    time::{Duration, Instant},
};

use monitor_api::{Attach, Attachments, KillScope, Reply, Request, Role, Target};
use node::{Node, PATIENCE};
use rustix::mount::OpenTreeFlags;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use testbed::wait_until;

/// Time limit of requests to a monitor on a machine under load.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Number of children of the monitor that are zombies.
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
fn orphans_beyond_those_of_one_iteration_are_reaped_without_a_further_signal() {
    const ORPHANS: usize = 700;
    let mut node = Node::start();
    // No child may be reaped before the monitor is stopped.
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
    wait_until("all have exited", PATIENCE, || zombies(&node) >= ORPHANS);
    kill_process(node.monitor, Signal::CONT).expect("continue");
    wait_until("all are reaped", PATIENCE, || zombies(&node) == 0);
    node.wait_for_entry("host", "stdout F done");
    node.delete("host");
    node.end();
}

/// Starts a monitor whose epoll_ctl(2) fails as if `fs.epoll.max_user_watches` were exhausted, except for its listener
/// and signals.
fn start_without_watches() -> Node {
    start_with_failing("epoll_ctl", "error=ENOSPC:when=3+")
}

/// Starts a monitor with a system call that fails as specified (`--inject` of strace(1)).
fn start_with_failing(call: &str, how: &str) -> Node {
    let directory = tempfile::tempdir().expect("tempdir");
    let script = directory.path().join("pinmon");
    let program = node::program();
    // With -D the tracer is not the parent, so the pid of the monitor is that of this script.
    let text = format!(
        "#!/bin/sh\nexec /usr/bin/strace -D -f -q -o /dev/null -e trace={call} -e inject={call}:{how} {} \"$@\"\n",
        program.display()
    );
    fs::write(&script, text).expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("chmod");
    let node = Node::start_program(&script);
    drop(directory);
    node
}

#[test]
fn the_cgroup_of_an_exec_is_removed_after_transient_enomem() {
    let mut node = start_with_failing("unlinkat", "error=ENOMEM:when=1..3");
    node.run("c", &["sleep", "1000"]);
    node.exec("c", "e", &["true"]).expect("exec");
    assert_eq!(node.wait_exec("e").code, Some(0));
    wait_until("the cgroup of the exec is removed", PATIENCE, || !node.has_group("e"));
    node.delete("c");
    node.end();
}

#[test]
fn containers_run_and_are_logged_if_nothing_can_be_watched() {
    if !PathBuf::from("/usr/bin/strace").exists() {
        return;
    }
    let mut node = start_without_watches();
    let begin = Instant::now();
    let script = "echo one; echo error >&2; read -r l; echo two; exit 7";
    let (stdin, stdin_writer) = std::io::pipe().expect("pipe");
    let output = node.output("c").with(Role::Stdin, stdin.into());
    let spec = node.spec("c", &["sh", "-c", script]);
    node.create_with("c", spec, output).expect("create");
    node.start_container("c").expect("start");
    node.wait_for_entry("c", "stdout F one");
    node.exec("c", "e", &["sh", "-c", "exit 3"]).expect("exec");
    assert_eq!(node.wait_exec("e").code, Some(3));
    // An attached client is disconnected, and its container keeps running.
    let (_reader, tap) = std::io::pipe().expect("pipe");
    let attach = Request::Attach(Attach { container: "c".into() });
    node.request(attach, Attachments::new().with(Role::Stdout, tap.into())).expect("attach");
    std::io::Write::write_all(&mut { stdin_writer }, b"go\n").expect("write");
    assert_eq!(node.wait("c").code, Some(7));
    let mut log = node.log("c");
    log.sort();
    assert_eq!(log, ["stderr F error", "stdout F one", "stdout F two"]);
    node.delete("c");
    assert!(begin.elapsed() < TIME_LIMIT, "{:?}", begin.elapsed());
    assert!(node.diagnostics().contains("polled every"), "{}", node.diagnostics());
    node.clear_diagnostics();
    node.end();
}

/// Sends requests without reading the answers until the socket of the monitor is full, and then reads all of them.
fn read_answers_late(node: &mut Node) {
    let requests: Vec<u64> = (0..3000).map(|_| node.send(Request::Ping, &Attachments::new())).collect();
    for seq in requests {
        node.answer(seq).expect("an answer");
    }
    // The connection works as before.
    node.request(Request::Ping, Attachments::new()).expect("an answer");
}

#[test]
fn a_daemon_that_reads_late_gets_all_answers() {
    let mut node = Node::start();
    read_answers_late(&mut node);
    node.end();
}

#[test]
fn a_daemon_that_reads_late_gets_all_answers_if_nothing_can_be_watched() {
    let mut node = start_without_watches();
    read_answers_late(&mut node);
    node.clear_diagnostics();
    node.end();
}

/// Runs `work` while the monitor can open only this number of further descriptors.
fn with_room<T>(node: &mut Node, room: usize, work: impl FnOnce(&mut Node) -> T) -> T {
    let pid = Some(node.monitor);
    let open = node.descriptors();
    let maximum = getrlimit(Resource::Nofile).maximum;
    let narrow = Rlimit { current: Some((open + room) as u64), maximum };
    let before = prlimit(pid, Resource::Nofile, narrow).expect("prlimit");
    let done = work(node);
    prlimit(pid, Resource::Nofile, before).expect("prlimit");
    done
}

/// For any step that fails because the descriptor limit is reached.
#[test]
fn an_exec_that_is_answered_with_an_error_does_not_run() {
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
                wait_until("its cgroup is removed", PATIENCE, || !node.has_group(&id));
            }
        }
    }
    assert!(failed > 0, "no request failed");
    node.delete("c");
    node.clear_diagnostics();
    node.end();
}

#[test]
fn a_container_that_is_answered_with_an_error_does_not_exist() {
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
                wait_until("its cgroup is removed", PATIENCE, || !node.has_group(&id));
                assert!(!node.inventory().contains_key(&id), "{id} is held");
            }
        }
    }
    assert!(failed > 0, "no request failed");
    node.delete("other");
    node.clear_diagnostics();
    node.end();
}

/// Mounts that are sent before a `Create` belong to its container. They are dropped if the container is deleted or the
/// connection closes.
#[test]
fn mounts_sent_before_their_create_are_used() {
    let mut node = Node::start();
    let directory = node.state.path().join("volume");
    std::fs::create_dir(&directory).expect("create the volume");
    std::fs::write(directory.join("file"), "of the node\n").expect("create the volume");
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
    let send_mounts = |node: &mut Node, id: &str, index: u32| {
        let mounts = Attachments::new().with(Role::Mount(index), mount());
        node.request(Request::Mounts { container: id.into() }, mounts).expect("accepted");
    };
    let (with_mounts, first) = spec(&node, "c");
    send_mounts(&mut node, "c", first);
    send_mounts(&mut node, "c", first + 1);
    let output = node.output("c");
    node.create_with("c", with_mounts, output).expect("create");
    node.start_container("c").expect("start");
    node.wait_for_entry("c", "stdout F of the node");
    assert_eq!(node.wait("c").code, Some(0));
    node.delete("c");
    let (with_mounts, first) = spec(&node, "d");
    send_mounts(&mut node, "d", first);
    send_mounts(&mut node, "d", first + 1);
    node.delete("d");
    let output = node.output("d");
    let failure = node.create_with("d", with_mounts, output).err().expect("its mounts were dropped");
    assert!(failure.message.contains("a bind mount needs a source"), "{failure}");

    // The source of a mount is not used in place of a missing descriptor.
    let (mut with_mounts, _) = spec(&node, "e");
    with_mounts.mounts.iter_mut().for_each(|mount| mount.source = Some("/".into()));
    let failure = node.refused_with_mounts("e", with_mounts, Some(2));
    assert!(failure.message.contains("0 of 2 mounts received"), "{failure}");
    node.end();
}

/// Mounts without a `Create` are closed, however many there are, and their number per container is limited.
#[test]
fn mounts_without_a_create_are_limited_and_closed() {
    let mut node = Node::start();
    let before = node.descriptors();
    let mounts_from = |first: u32, count: u32| {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let mount = || rustix::mount::open_tree(rustix::fs::CWD, "/usr", flags).expect("open_tree");
        (first..first + count).fold(Attachments::new(), |all, index| all.with(Role::Mount(index), mount()))
    };
    let mounts = || Request::Mounts { container: "c".into() };
    let most = u32::try_from(monitor_api::MOUNTS_MAX).expect("few");
    for first in (0..most).step_by(128) {
        node.request(mounts(), mounts_from(first, 128)).expect("accepted");
    }
    assert!(node.descriptors() >= before + most as usize);
    let failure = node.request(mounts(), mounts_from(most, 1)).map(|(reply, _)| reply).expect_err("one too many");
    assert!(failure.message.contains("at most 4096"), "{failure}");
    wait_until("all are closed", PATIENCE, || node.descriptors() <= before);
    node.request(mounts(), mounts_from(0, 128)).expect("accepted");
    node.delete("c");
    wait_until("those of a deleted container are closed", PATIENCE, || node.descriptors() <= before);
    node.end();
}

/// The container library mounts a file system of the host in the calling process, which may wait for a disk.
#[test]
fn file_systems_of_the_host_are_not_mounted() {
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
    assert!(failure.message.contains("must be attached as descriptors"), "{failure}");
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
