//! Terminals that cannot be hung up: the last close of a master waits for a process that is inside read(2) of the
//! slave.

mod node;

use std::{
    fs::{self, OpenOptions},
    os::fd::AsFd,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Child,
    time::{Duration, Instant},
};

use monitor_api::{Attachments, KillScope, Reply, Request, Role, Target};
use node::disk::Disk;
use node::{Node, PATIENCE};
use rustix::{
    fd::OwnedFd,
    process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit},
};
use syscall::shared_memory::SharedMemory;
use testbed::{this_test, wait_until};

/// Time limit of operations that do not wait for the terminal. They take much less.
const TIME_LIMIT: Duration = Duration::from_secs(10);
const PAGE: u64 = 4096;
// Variables of the process that reads: the slave, the file with the page, and a directory for files that name its steps.
const SLAVE: &str = "PINMON_TEST_SLAVE";
const MAPPED: &str = "PINMON_TEST_PAGE";
const STEPS: &str = "PINMON_TEST_STEPS";

/// A process inside read(2) of a slave whose buffer is a page of a file system that hangs.
struct Reader {
    child: Child,
}

impl Reader {
    /// Starts the process and freezes the disk.
    fn start(disk: &mut Disk, slave: &Path, master: &OwnedFd) -> Self {
        let directory = tempfile::tempdir().expect("tempdir");
        let mut child = this_test("reads_into_a_page_that_cannot_be_written")
            .env(SLAVE, slave)
            .env(MAPPED, disk.path().join("page"))
            .env(STEPS, directory.path())
            .spawn()
            .expect("spawn");
        wait_until("the page is mapped", TIME_LIMIT, || directory.path().join("mapped").exists());
        disk.freeze();
        rustix::io::write(master, b"hello\n").expect("type");
        fs::write(directory.path().join("go"), "").expect("go");
        let id = child.id();
        wait_until("a thread blocks", TIME_LIMIT, || has_waiting_thread(id));
        assert!(child.try_wait().expect("wait").is_none());
        Self { child }
    }

    fn end(mut self) {
        let _ = self.child.kill();
        self.child.wait().expect("wait");
    }
}

fn has_waiting_thread(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let states = threads.map(|thread| fs::read_to_string(thread.path().join("stat")).unwrap_or_default());
    states.into_iter().any(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" D")))
}

/// Not a test: [`Reader`] runs this function in another process.
#[test]
fn reads_into_a_page_that_cannot_be_written() {
    if std::env::var_os(SLAVE).is_none() {
        return;
    }
    let name = |variable: &str| PathBuf::from(std::env::var_os(variable).expect("set by another test"));
    let (slave, page, steps) = (name(SLAVE), name(MAPPED), name(STEPS));
    let open = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open(slave).expect("open");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(page).expect("a page");
    let mut memory = SharedMemory::map(file.into(), PAGE as usize).expect("map");
    fs::write(steps.join("mapped"), "").expect("written");
    wait_until("the test continues", TIME_LIMIT, || steps.join("go").exists());
    let _ = rustix::io::read(&open, memory.bytes_mut());
}

/// Returns the path on the host of the slave that is the standard input of a process in a container.
fn slave_of(pid: u32) -> PathBuf {
    let slave = fs::read_link(format!("/proc/{pid}/fd/0")).expect("its input");
    PathBuf::from(format!("/proc/{pid}/root{}", slave.display()))
}

/// Number of masters that the monitor has open.
fn masters(node: &Node) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", node.monitor.as_raw_nonzero())).expect("the monitor is running");
    let is_master = |path: PathBuf| fs::read_link(path).is_ok_and(|to| to.ends_with("ptmx"));
    files.flatten().filter(|file| is_master(file.path())).count()
}

fn exec_with_terminal(node: &mut Node, id: &str) -> (u32, OwnedFd) {
    let mut process = node.spec("c", &["sleep", "1000"]).process.expect("a process");
    process.terminal = true;
    let (started, mut files) = node.exec_with("c", id, process, Attachments::new()).expect("exec");
    (started.pid, files.take(Role::Terminal).expect("a master side"))
}

fn assert_prompt(node: &mut Node, begin: Instant) {
    let (reply, _) = node.request(Request::Ping, Attachments::new()).expect("ping");
    assert!(matches!(reply, Reply::Pong(_)));
    node.run("bystander", &["true"]);
    assert_eq!(node.wait("bystander").code, Some(0));
    node.delete("bystander");
    assert!(begin.elapsed() < TIME_LIMIT, "requests about others took {:?}", begin.elapsed());
}

#[test]
fn a_terminal_of_an_exec_that_cannot_be_hung_up_blocks_nothing_else() {
    let mut node = Node::start();
    // Declared after the node, so that it is dropped first if the test fails: processes that hang would block the
    // cleanup.
    let mut disk = Disk::new();
    node.run("c", &["sleep", "1000"]);
    let (pid, master) = exec_with_terminal(&mut node, "e");
    let reader = Reader::start(&mut disk, &slave_of(pid), &master);
    // The client hangs up, and the monitor has the last copy.
    drop(master);
    let begin = Instant::now();
    node.kill(Target::Exec("e".into()), libc::SIGKILL, KillScope::All).expect("kill");
    assert_eq!(node.wait_exec("e").signal, Some(9));
    std::thread::sleep(Duration::from_millis(300));
    assert_prompt(&mut node, begin);
    wait_until("the master is closed", PATIENCE, || masters(&node) == 0);
    disk.thaw();
    reader.end();
    node.delete("c");
    node.end();
}

#[test]
fn a_terminal_of_a_container_that_cannot_be_hung_up_blocks_nothing_else() {
    let mut node = Node::start();
    // Declared after the node, so that it is dropped first if the test fails: processes that hang would block the
    // cleanup.
    let mut disk = Disk::new();
    let mut spec = node.spec("t", &["sleep", "1000"]);
    spec.process.as_mut().expect("a process").terminal = true;
    let log = Attachments::new().with(Role::Log, node.open_log("t"));
    let mut container = node.create_with("t", spec, log).expect("create");
    node.start_container("t").expect("start");
    let master = container.terminal.take().expect("a master side");
    // The log writer reads from the master.
    let reader = Reader::start(&mut disk, &slave_of(container.created.pid), &master);
    drop(master);
    let begin = Instant::now();
    node.kill(Target::Container("t".into()), libc::SIGKILL, KillScope::All).expect("kill");
    assert_eq!(node.wait("t").signal, Some(9));
    node.delete("t");
    std::thread::sleep(Duration::from_millis(300));
    assert_prompt(&mut node, begin);
    wait_until("the master is closed", PATIENCE, || masters(&node) == 0);
    disk.thaw();
    reader.end();
    node.end();
}

#[test]
fn a_master_that_no_closer_can_be_cloned_for_is_closed_later() {
    let mut node = Node::start();
    node.run("c", &["sleep", "1000"]);
    let (pid, master) = exec_with_terminal(&mut node, "e");
    drop(master);
    // The duplicate in the answer is closed a moment after it was sent.
    wait_until("one master is open", PATIENCE, || masters(&node) == 1);
    let (limit, monitor) = (getrlimit(Resource::Nofile), Some(node.monitor));
    let narrow = Rlimit { current: Some(4), maximum: limit.maximum };
    let before = prlimit(monitor, Resource::Nofile, narrow).expect("prlimit");
    kill_process(Pid::from_raw(pid.cast_signed()).expect("a pid"), Signal::KILL).expect("kill");
    assert_eq!(node.wait_exec("e").signal, Some(9));
    wait_until("the message is logged", PATIENCE, || node.diagnostics().contains("left open for now"));
    assert_eq!(masters(&node), 1);
    prlimit(monitor, Resource::Nofile, before).expect("prlimit");
    wait_until("the master is closed", PATIENCE, || masters(&node) == 0);
    node.delete("c");
    node.clear_diagnostics();
    node.end();
}

#[test]
fn a_leftover_slave_is_hung_up() {
    let mut node = Node::start();
    node.run("c", &["sleep", "1000"]);
    let (pid, master) = exec_with_terminal(&mut node, "e");
    let slave = OpenOptions::new().read(true).custom_flags(libc::O_NOCTTY).open(slave_of(pid)).expect("open");
    drop(master);
    node.kill(Target::Exec("e".into()), libc::SIGKILL, KillScope::All).expect("kill");
    node.wait_exec("e");
    let patience = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(slave.as_fd(), rustix::event::PollFlags::HUP)];
    assert_eq!(rustix::event::poll(&mut fds, Some(&patience)).expect("poll"), 1, "its master is closed");
    node.delete("c");
    node.end();
}
