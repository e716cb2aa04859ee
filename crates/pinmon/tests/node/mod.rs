//! A node for one test: a real monitor with a state directory of its own, and this test as its daemon.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]

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
};

use monitor_api::{
    Attachments, Connection, Create, Created, Envelope, Event, Exec, ExecStarted, ExitStatus, Failure, Kill, KillScope,
    LogOptions, Reply, Request, Role, Target,
};
use rustix::{
    fs::{CWD, Mode},
    mount::OpenTreeFlags,
    process::{Pid, Signal, WaitOptions, kill_process, waitpid},
};

static NODES: AtomicU32 = AtomicU32::new(0);

/// Longest wait for a frame: only a hung monitor takes longer.
const PATIENCE: i64 = 60;

pub struct Node {
    pub state: tempfile::TempDir,
    pub cgroup: String,
    program: PathBuf,
    pub monitor: Pid,
    daemon: Option<Connection>,
    seq: u64,
    events: VecDeque<Event>,
    /// To requests that were not asked for yet.
    answers: BTreeMap<u64, Result<(Reply, Attachments), Failure>>,
    root: PathBuf,
    /// Set where a test ended the monitor itself.
    pub over: bool,
}

/// The daemon's descriptors of a container.
pub struct Held {
    pub id: String,
    pub created: Created,
    pub pidfd: OwnedFd,
    pub sync: Option<OwnedFd>,
    pub terminal: Option<OwnedFd>,
    /// As long as somebody holds them, what is in the FIFOs outlives monitor and container.
    pub reading: Attachments,
}

impl Node {
    pub fn start() -> Self {
        // The shipped static build can be tested as well as the one cargo made for this.
        let program = std::env::var("PINMON").unwrap_or_else(|_| env!("CARGO_BIN_EXE_pinmon").to_owned());
        Self::start_program(Path::new(&program))
    }

    /// With this file as the monitor's standard error.
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
        for directory in ["bin", "dev", "proc", "tmp"] {
            fs::create_dir_all(root.join(directory)).expect("mkdir");
        }
        fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox-static is installed");
        for name in [
            "sh", "cat", "sleep", "seq", "true", "kill", "echo", "stty", "tty", "yes", "head", "dd", "ps", "readlink",
            "ls",
        ] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).expect("symlink");
        }
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
            over: false,
        };
        node.connect();
        node
    }

    /// As a daemon that was restarted.
    pub fn connect(&mut self) {
        self.daemon = None;
        self.events.clear();
        let connection = monitor_api::connect(self.state.path()).expect("connect");
        let patience = Some(std::time::Duration::from_secs(PATIENCE as u64));
        rustix::net::sockopt::set_socket_timeout(&connection, rustix::net::sockopt::Timeout::Recv, patience)
            .expect("SO_RCVTIMEO");
        self.daemon = Some(connection);
        let hello = Request::Hello { major: monitor_api::MAJOR, minor: monitor_api::MINOR };
        let (reply, _) = self.ask(hello, Attachments::new()).expect("hello");
        assert!(matches!(reply, Reply::Welcome(welcome) if welcome.pid == self.monitor.as_raw_nonzero().get() as u32));
    }

    /// As a daemon that died.
    pub fn disconnect(&mut self) {
        self.daemon = None;
    }

    /// kill -9, and another one.
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

    /// Answers to other requests that come before it are kept.
    pub fn answer(&mut self, want: u64) -> Result<(Reply, Attachments), Failure> {
        loop {
            if let Some(answer) = self.answers.remove(&want) {
                return answer;
            }
            match self.receive() {
                (Envelope::Event(event), _) => self.events.push_back(event),
                (Envelope::Reply { seq, body, .. }, attachments) => {
                    let answer = body.map(|body| (body, attachments));
                    if seq == want {
                        return answer;
                    }
                    self.answers.insert(seq, answer);
                }
                other => panic!("unexpected: {other:?}"),
            }
        }
    }

    pub fn ask(&mut self, request: Request, attachments: Attachments) -> Result<(Reply, Attachments), Failure> {
        let seq = self.send(request, &attachments);
        drop(attachments);
        self.answer(seq)
    }

    pub fn inventory(&mut self) -> BTreeMap<String, (monitor_api::Holding, Attachments)> {
        let seq = self.send(Request::Inventory, &Attachments::new());
        let mut all = BTreeMap::new();
        while let (Reply::Holding(holding), files) = self.answer(seq).expect("inventory") {
            assert!(all.insert(holding.id.clone(), (*holding, files)).is_none());
        }
        all
    }

    /// The next event, whatever it is.
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

    /// Entries of a log without time: `stdout F text`.
    pub fn log(&self, id: &str) -> Vec<String> {
        entries(&self.log_path(id))
    }

    pub fn fifo(&self, id: &str, stream: &str) -> PathBuf {
        self.state.path().join(format!("{id}.{stream}"))
    }

    /// Both ends of the container's output, made and opened as the daemon does.
    pub fn output(&self, id: &str) -> Attachments {
        let mut attachments = self.reading(id);
        for (stream, role) in [("stdout", Role::Stdout), ("stderr", Role::Stderr)] {
            let file = OpenOptions::new().read(true).write(true).open(self.fifo(id, stream)).expect("open FIFO");
            attachments.push(role, file.into());
        }
        attachments
    }

    /// The monitor's ends and the log.
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

    /// Makes an empty file of this name in the root directory of all containers.
    pub fn put(&self, name: &str) {
        fs::write(self.root.join(name), "").expect("written");
    }

    pub fn rootfs(&self) -> OwnedFd {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        rustix::mount::open_tree(CWD, &self.root, flags).expect("open_tree")
    }

    pub fn spec(&self, id: &str, args: &[&str]) -> oci::Spec {
        let text = serde_json::json!({
            "ociVersion": "1.2.0",
            "root": { "path": "/", "readonly": false },
            "process": {
                "args": args, "env": ["PATH=/bin"], "cwd": "/", "user": { "uid": 0, "gid": 0 },
                "capabilities": { "bounding": ["CAP_KILL"], "effective": ["CAP_KILL"], "permitted": ["CAP_KILL"] },
                "noNewPrivileges": true
            },
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc" },
                { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"] },
                { "destination": "/dev/pts", "type": "devpts", "source": "devpts",
                  "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"] }
            ],
            "linux": {
                "cgroupsPath": format!("{}/{id}", self.cgroup),
                "namespaces": [{ "type": "pid" }, { "type": "mount" }, { "type": "ipc" }, { "type": "uts" }, { "type": "cgroup" }]
            }
        });
        serde_json::from_value(text).expect("a spec")
    }

    pub fn create_with(&mut self, id: &str, spec: oci::Spec, attachments: Attachments) -> Result<Held, Failure> {
        let mut reading = Attachments::new();
        for (role, fd) in attachments.iter().filter(|(role, _)| matches!(role, Role::StdoutRead | Role::StderrRead)) {
            reading.push(*role, fd.try_clone().expect("dup"));
        }
        let attachments = attachments.with(Role::Rootfs, self.rootfs());
        let create = Create {
            container: id.into(),
            sandbox: "pod".into(),
            spec,
            log: LogOptions::default(),
            bundle: String::new(),
            mounts: None,
        };
        let (reply, mut files) = self.ask(Request::Create(Box::new(create)), attachments)?;
        let Reply::Created(created) = reply else { panic!("unexpected: {reply:?}") };
        Ok(Held {
            id: id.into(),
            created,
            pidfd: files.take(Role::Pidfd).expect("a pidfd"),
            sync: files.take(Role::Sync),
            terminal: files.take(Role::Terminal),
            reading,
        })
    }

    /// Sends a `Create` with these descriptors, and says how many mounts were sent.
    pub fn refused_with_mounts(&mut self, id: &str, spec: oci::Spec, mounts: Option<usize>) -> Failure {
        let create = Create {
            container: id.into(),
            sandbox: "pod".into(),
            spec,
            log: LogOptions::default(),
            bundle: String::new(),
            mounts,
        };
        let attachments = self.output(id).with(Role::Rootfs, self.rootfs());
        self.ask(Request::Create(Box::new(create)), attachments).map(|(reply, _)| reply).expect_err("refused")
    }

    pub fn create(&mut self, id: &str, args: &[&str]) -> Held {
        let (spec, output) = (self.spec(id, args), self.output(id));
        self.create_with(id, spec, output).expect("create")
    }

    pub fn start_container(&mut self, id: &str) -> Result<(), Failure> {
        self.ask(Request::Start { container: id.into() }, Attachments::new()).map(drop)
    }

    pub fn run(&mut self, id: &str, args: &[&str]) -> Held {
        let held = self.create(id, args);
        self.start_container(id).expect("start");
        held
    }

    pub fn shell(&mut self, id: &str, script: &str) -> Held {
        self.run(id, &["sh", "-c", script])
    }

    pub fn kill(&mut self, target: Target, signal: i32, scope: KillScope) -> Result<(), Failure> {
        self.ask(Request::Kill(Kill { target, signal, scope }), Attachments::new()).map(drop)
    }

    pub fn delete(&mut self, id: &str) {
        self.ask(Request::Delete { container: id.into() }, Attachments::new()).expect("delete");
    }

    pub fn exec(&mut self, id: &str, exec: &str, args: &[&str]) -> Result<(ExecStarted, Attachments), Failure> {
        let process = self.spec(id, args).process.expect("a process");
        self.exec_with(id, exec, process, Attachments::new())
    }

    pub fn exec_with(
        &mut self,
        id: &str,
        exec: &str,
        process: oci::Process,
        attachments: Attachments,
    ) -> Result<(ExecStarted, Attachments), Failure> {
        let request = Exec { exec: exec.into(), container: id.into(), process };
        let (reply, files) = self.ask(Request::Exec(Box::new(request)), attachments)?;
        let Reply::ExecStarted(started) = reply else { panic!("unexpected: {reply:?}") };
        Ok((started, files))
    }

    /// Waits until a log has an entry, as a reader of the log would: by looking at its end.
    pub fn wait_for_entry(&self, id: &str, entry: &str) {
        let watch = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).expect("inotify");
        let flags = rustix::fs::inotify::WatchFlags::MODIFY;
        rustix::fs::inotify::add_watch(&watch, self.log_path(id), flags).expect("watch");
        while !self.log(id).iter().any(|line| line == entry) {
            let mut fds = [rustix::event::PollFd::new(&watch, rustix::event::PollFlags::IN)];
            let patience = rustix::event::Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
            let ready = rustix::event::poll(&mut fds, Some(&patience)).expect("poll");
            assert!(ready > 0, "{entry:?} never came: {:?}", self.log(id));
            rustix::io::read(&watch, &mut [0u8; 4096]).expect("read inotify");
        }
    }

    pub fn diagnostics(&self) -> String {
        fs::read_to_string(self.state.path().join("pinmon.log")).unwrap_or_default()
    }

    /// Whether a container or command of this id has a group.
    pub fn has_group(&self, id: &str) -> bool {
        self.groups().iter().any(|path| path.ends_with(id))
    }

    /// Looks until it is so.
    pub fn eventually(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let begin = std::time::Instant::now();
        while !so(self) {
            assert!(begin.elapsed().as_secs() < PATIENCE as u64, "not even late: {what}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// The groups that are there under this node's.
    pub fn groups(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for tree in fs::read_dir("/sys/fs/cgroup").expect("cgroups").flatten() {
            let path = tree.path().join(&self.cgroup[1..]);
            if path.exists() {
                walk(&path, &mut found);
            }
        }
        found
    }

    /// After a failed test: kills what is left, and removes its groups.
    fn remove_groups(&self) {
        let Ok(trees) = cgroup::Hierarchies::open() else { return };
        let path = cgroup::GroupPath::parse(&self.cgroup).expect("a path");
        if let Ok(group) = cgroup::Group::open(&trees, &path) {
            for id in self.groups().iter().filter_map(|path| path.file_name()).filter_map(|name| name.to_str()) {
                if let Ok(group) = path.join(id).and_then(|path| cgroup::Group::open(&trees, &path)) {
                    let _ = group.kill();
                }
            }
            let _ = group.remove();
        }
    }

    fn sweep(&self) {
        if let (Ok(trees), Ok(path)) =
            (cgroup::Hierarchies::open(), cgroup::GroupPath::parse(&format!("{}/x", self.cgroup)))
        {
            trees.remove_empty_parents(&path, None);
        }
    }

    /// As `end`, where monitors were killed.
    pub fn over_with_noise(self) {
        self.end();
    }

    /// Nothing may be left: asks the monitor to end, which it only does when it holds nothing.
    pub fn end(mut self) {
        self.ask(Request::Shutdown, Attachments::new()).expect("nothing is held");
        let (_, status) = waitpid(Some(self.monitor), WaitOptions::empty()).expect("wait").expect("ended");
        assert_eq!(status.exit_status(), Some(0), "{}", self.diagnostics());
        self.over = true;
        let base = |path: &PathBuf| !path.ends_with(&self.cgroup[1..]);
        assert!(!self.groups().iter().any(base), "{:?}", self.groups());
        let left: Vec<_> = fs::read_dir(self.state.path()).expect("list").flatten().map(|e| e.file_name()).collect();
        assert!(!left.iter().any(|n| n.to_string_lossy().starts_with("journal")), "{left:?}");
        assert_eq!(self.diagnostics(), "");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !self.over {
            eprintln!("pinmon said: {}", self.diagnostics());
            let _ = kill_process(self.monitor, Signal::KILL);
            let _ = waitpid(Some(self.monitor), WaitOptions::empty());
            self.remove_groups();
        }
        self.sweep();
    }
}

pub fn entries(path: &Path) -> Vec<String> {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.split_terminator('\n').map(|line| line.get(31..).unwrap_or(line).to_owned()).collect()
}

fn walk(path: &Path, found: &mut Vec<PathBuf>) {
    found.push(path.to_owned());
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            walk(&entry.path(), found);
        }
    }
}

fn open_stderr(state: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(state.join("pinmon.log")).expect("open log")
}

pub fn launch(program: &Path, state: &Path, log: &File) -> Pid {
    let listener = monitor_api::bind(state).expect("bind");
    let null = File::open("/dev/null").expect("open /dev/null");
    let program = CString::new(program.as_os_str().as_bytes()).expect("no zero");
    let state = CString::new(state.as_os_str().as_bytes()).expect("no zero");
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
