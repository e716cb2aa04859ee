//! A node for one test: a real monitor with its own state directory, and this test as its daemon.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test program uses a part")]

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::CString,
    fs::{self, File, OpenOptions},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use monitor_api::{Attachments, Connection, Envelope, Event, ExitStatus, Failure, Pong, Reply, Request, Role};
use rustix::{
    fs::{CWD, Mode},
    mount::OpenTreeFlags,
    process::{Pid, Signal, WaitOptions, kill_process, waitpid},
};
use testbed::{busybox, make_root};

mod containers;
pub mod disk;
mod groups;
pub mod lock;

pub use containers::TestContainer;

static NODES: AtomicU32 = AtomicU32::new(0);

/// Time limit of waiting for a frame or a condition. Only a hung monitor takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// File in the state directory with the messages of the monitor.
const DIAGNOSTICS: &str = "pinmon.log";

pub struct Node {
    pub state: tempfile::TempDir,
    pub cgroup: String,
    program: PathBuf,
    pub monitor: Pid,
    daemon: Option<Connection>,
    seq: u64,
    events: VecDeque<Event>,
    /// Answers that were received and not requested by the test yet.
    answers: BTreeMap<u64, Result<(Reply, Attachments), Failure>>,
    root: PathBuf,
    /// Set if a test ended the monitor itself.
    pub ended: bool,
}

/// Returns the monitor under test: `PINMON`, such as the released static build, or the one that cargo built for the
/// tests.
pub fn program() -> PathBuf {
    std::env::var_os("PINMON").unwrap_or_else(|| env!("CARGO_BIN_EXE_pinmon").into()).into()
}

impl Node {
    pub fn start() -> Self {
        Self::start_program(&program())
    }

    /// Starts a monitor with this file as its standard error.
    pub fn start_with_stderr(stderr: File) -> Self {
        Self::start_with(Path::new(env!("CARGO_BIN_EXE_pinmon")), |_| stderr)
    }

    pub fn start_program(program: &Path) -> Self {
        Self::start_with(program, open_stderr)
    }

    fn start_with(program: &Path, stderr: impl FnOnce(&Path) -> File) -> Self {
        let state = tempfile::tempdir().expect("tempdir");
        let number = NODES.fetch_add(1, Ordering::Relaxed);
        let cgroup = format!("/pinion-test-pinmon-{}-{number}", std::process::id());
        let root = state.path().join("root");
        make_root(&root, &busybox());
        let monitor = launch(program, state.path(), &stderr(state.path()));
        let mut node = Self {
            state,
            cgroup,
            program: program.to_owned(),
            monitor,
            daemon: None,
            seq: 0,
            events: VecDeque::new(),
            answers: BTreeMap::new(),
            root,
            ended: false,
        };
        node.connect();
        node
    }

    /// Connects like a restarted daemon.
    pub fn connect(&mut self) {
        self.daemon = None;
        self.events.clear();
        let connection = monitor_api::connect(self.state.path()).expect("connect");
        rustix::net::sockopt::set_socket_timeout(&connection, rustix::net::sockopt::Timeout::Recv, Some(PATIENCE))
            .expect("SO_RCVTIMEO");
        self.daemon = Some(connection);
        let hello = Request::Hello { major: monitor_api::MAJOR, minor: monitor_api::MINOR };
        let (reply, _) = self.request(hello, Attachments::new()).expect("hello");
        assert!(matches!(reply, Reply::Welcome(welcome) if welcome.pid == self.monitor.as_raw_nonzero().get() as u32));
    }

    /// Disconnects like a daemon that died.
    pub fn disconnect(&mut self) {
        self.daemon = None;
    }

    /// Kills the monitor with SIGKILL and starts another one.
    pub fn replace_monitor(&mut self) {
        kill_process(self.monitor, Signal::KILL).expect("kill");
        waitpid(Some(self.monitor), WaitOptions::empty()).expect("wait");
        self.monitor = launch(&self.program, self.state.path(), &open_stderr(self.state.path()));
        self.connect();
    }

    pub fn send(&mut self, request: Request, attachments: &Attachments) -> u64 {
        self.seq += 1;
        let envelope = Envelope::Request { seq: self.seq, body: Box::new(request), roles: Vec::new() };
        self.daemon.as_ref().expect("connected").send(envelope, attachments).expect("send");
        self.seq
    }

    fn receive(&mut self) -> (Envelope, Attachments) {
        self.daemon.as_ref().expect("connected").receive().expect("an answer")
    }

    /// Waits for the answer to this request. Earlier answers to others are kept.
    pub fn answer(&mut self, expected: u64) -> Result<(Reply, Attachments), Failure> {
        loop {
            if let Some(answer) = self.answers.remove(&expected) {
                return answer;
            }
            match self.receive() {
                (Envelope::Event(event), _) => self.events.push_back(event),
                (Envelope::Reply { seq, body, .. }, attachments) => {
                    let answer = body.map(|body| (body, attachments));
                    if seq == expected {
                        return answer;
                    }
                    self.answers.insert(seq, answer);
                }
                other => panic!("unexpected: {other:?}"),
            }
        }
    }

    pub fn request(&mut self, request: Request, attachments: Attachments) -> Result<(Reply, Attachments), Failure> {
        let seq = self.send(request, &attachments);
        drop(attachments);
        self.answer(seq)
    }

    pub fn inventory(&mut self) -> BTreeMap<String, (monitor_api::Holding, Attachments)> {
        let seq = self.send(Request::Inventory, &Attachments::new());
        let mut all = BTreeMap::new();
        while let (Reply::Holding(holding), files) = self.answer(seq).expect("inventory") {
            assert!(all.insert(holding.container.id.clone(), (*holding, files)).is_none());
        }
        all
    }

    /// Returns the next event.
    pub fn event(&mut self) -> Event {
        if let Some(event) = self.events.pop_front() {
            return event;
        }
        match self.receive() {
            (Envelope::Event(event), _) => event,
            other => panic!("unexpected: {other:?}"),
        }
    }

    pub fn wait(&mut self, id: &str) -> ExitStatus {
        loop {
            if let Event::Exited { container, status } = self.event() {
                assert_eq!(container, id);
                return status;
            }
        }
    }

    pub fn wait_exec(&mut self, id: &str) -> ExitStatus {
        loop {
            if let Event::ExecExited { exec, status, .. } = self.event() {
                assert_eq!(exec, id);
                return status;
            }
        }
    }

    pub fn log_path(&self, id: &str) -> PathBuf {
        self.state.path().join(format!("{id}.log"))
    }

    pub fn open_log(&self, id: &str) -> OwnedFd {
        let path = self.log_path(id);
        OpenOptions::new().append(true).create(true).mode(0o640).open(path).expect("open log").into()
    }

    /// Returns the entries of a log without their times: `stdout F text`.
    pub fn log(&self, id: &str) -> Vec<String> {
        entries(&self.log_path(id))
    }

    /// Reassembles the output from the log. A line whose end its writer owed for a while is logged in pieces.
    pub fn text(&self, id: &str) -> Vec<u8> {
        let log = fs::read(self.log_path(id)).expect("log");
        let mut all = Vec::new();
        for line in log.split_inclusive(|byte| *byte == b'\n') {
            let (tag, text) = (line[38], &line[40..]);
            all.extend_from_slice(if tag == b'F' { text } else { &text[..text.len() - 1] });
        }
        all
    }

    pub fn fifo(&self, id: &str, stream: &str) -> PathBuf {
        self.state.path().join(format!("{id}.{stream}"))
    }

    /// Creates and opens both ends of the container's output, as the daemon does.
    pub fn output(&self, id: &str) -> Attachments {
        let mut attachments = self.reading(id);
        for (stream, role) in [("stdout", Role::Stdout), ("stderr", Role::Stderr)] {
            let file = OpenOptions::new().read(true).write(true).open(self.fifo(id, stream)).expect("open FIFO");
            attachments.push(role, file.into());
        }
        attachments
    }

    /// Opens the read ends for the monitor, and the log.
    pub fn reading(&self, id: &str) -> Attachments {
        let mut attachments = Attachments::new().with(Role::Log, self.open_log(id));
        for (stream, role) in [("stdout", Role::StdoutRead), ("stderr", Role::StderrRead)] {
            let path = self.fifo(id, stream);
            if !path.exists() {
                rustix::fs::mkfifoat(CWD, &path, Mode::from_raw_mode(0o600)).expect("mkfifo");
            }
            let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).expect("open FIFO");
            attachments.push(role, file.into());
        }
        attachments
    }

    /// Creates an empty file with this name in the root directory of all containers.
    pub fn put(&self, name: &str) {
        fs::write(self.root.join(name), "").expect("written");
    }

    pub fn rootfs(&self) -> OwnedFd {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        rustix::mount::open_tree(CWD, &self.root, flags).expect("open_tree")
    }

    /// Waits until a log has an entry, as a reader of the log would.
    pub fn wait_for_entry(&self, id: &str, entry: &str) {
        let watch = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).expect("inotify");
        let flags = rustix::fs::inotify::WatchFlags::MODIFY;
        rustix::fs::inotify::add_watch(&watch, self.log_path(id), flags).expect("watch");
        while !self.log(id).iter().any(|line| line == entry) {
            let mut fds = [rustix::event::PollFd::new(&watch, rustix::event::PollFlags::IN)];
            let patience = rustix::event::Timespec::try_from(PATIENCE).expect("a short time");
            let ready = rustix::event::poll(&mut fds, Some(&patience)).expect("poll");
            assert!(ready > 0, "timed out waiting for {entry:?}: {:?}", self.log(id));
            rustix::io::read(&watch, &mut [0u8; 4096]).expect("read inotify");
        }
    }

    pub fn diagnostics(&self) -> String {
        fs::read_to_string(self.state.path().join(DIAGNOSTICS)).unwrap_or_default()
    }

    /// Empties the messages of the monitor after a test that expects some.
    pub fn clear_diagnostics(&self) {
        fs::write(self.state.path().join(DIAGNOSTICS), "").expect("empty the messages of the monitor");
    }

    /// Returns the number of open descriptors of the monitor.
    pub fn descriptors(&self) -> usize {
        testbed::descriptors(format!("/proc/{}", self.monitor.as_raw_nonzero()))
    }

    pub fn ping(&mut self) -> Pong {
        match self.request(Request::Ping, Attachments::new()).expect("ping") {
            (Reply::Pong(pong), _) => pong,
            (other, _) => panic!("unexpected: {other:?}"),
        }
    }

    /// Ends a node whose monitors were killed.
    pub fn end_after_kills(self) {
        self.end();
    }

    /// Ends the monitor, which it refuses unless it holds nothing, and checks that nothing is left over.
    pub fn end(mut self) {
        self.request(Request::Shutdown, Attachments::new()).expect("the monitor holds nothing");
        let (_, status) = waitpid(Some(self.monitor), WaitOptions::empty()).expect("wait").expect("ended");
        assert_eq!(status.exit_status(), Some(0), "{}", self.diagnostics());
        self.ended = true;
        let is_below_base = |path: &PathBuf| !path.ends_with(&self.cgroup[1..]);
        assert!(!self.groups().iter().any(is_below_base), "{:?}", self.groups());
        let files: Vec<_> = fs::read_dir(self.state.path()).expect("list").flatten().map(|e| e.file_name()).collect();
        assert!(!files.iter().any(|n| n.to_string_lossy().starts_with("journal")), "{files:?}");
        assert_eq!(self.diagnostics(), "");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !self.ended {
            eprintln!("messages of pinmon: {}", self.diagnostics());
            let _ = kill_process(self.monitor, Signal::KILL);
            let _ = waitpid(Some(self.monitor), WaitOptions::empty());
            self.remove_groups();
        }
        self.remove_empty_parents();
    }
}

pub fn entries(path: &Path) -> Vec<String> {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.split_terminator('\n').map(|line| line.get(31..).unwrap_or(line).to_owned()).collect()
}

fn open_stderr(state: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(state.join(DIAGNOSTICS)).expect("open log")
}

pub fn launch(program: &Path, state: &Path, log: &File) -> Pid {
    let listener = monitor_api::bind(state).expect("bind");
    let null = File::open("/dev/null").expect("open /dev/null");
    let program = CString::new(program.as_os_str().as_bytes()).expect("no zero byte");
    let state = CString::new(state.as_os_str().as_bytes()).expect("no zero byte");
    let arguments = [
        c"pinmon".to_owned(),
        c"serve".to_owned(),
        c"--socket-fd".to_owned(),
        c"3".to_owned(),
        c"--state".to_owned(),
        state,
    ];
    let files = [null.as_fd(), log.as_fd(), log.as_fd(), listener.as_fd()];
    syscall::spawn::spawn(&program, &arguments, &[c"PATH=/bin".to_owned()], &files).expect("spawn pinmon")
}
