use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use tempfile::TempDir;
use testbed::{Namespaces, program};

use crate::{Outcome, Process, wait_until};

/// The command that the init process of a node, a shell, waits for.
const WAIT: &str = "sleep 3600";

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Options of a node that differ from the defaults.
#[derive(Debug, Default)]
pub struct Options {
    /// Lines added to the daemon's configuration file.
    pub config: String,
    /// Files in the directory of CNI configurations: names and contents.
    pub cni: Vec<(String, String)>,
    /// Environment variables of the daemon.
    pub env: Vec<(String, String)>,
}

/// A node: namespaces, directories, a daemon and a monitor.
pub struct Node {
    /// Directory with all files of this node.
    pub dir: TempDir,
    /// Number of this node in the test process, for unique names.
    pub number: u32,
    anchor: Child,
    daemon: Option<Child>,
    options: Options,
}

impl Node {
    /// Creates a node with a running daemon.
    pub fn start() -> Self {
        Self::with(Options::default())
    }

    /// Creates a node with a running daemon and options.
    pub fn with(options: Options) -> Self {
        let mut node = Self::new(options);
        node.start_daemon();
        node
    }

    /// Creates a node whose daemon is not started yet.
    pub fn new(options: Options) -> Self {
        let dir = tempfile::Builder::new().prefix("pinion-test-").tempdir().expect("create a temporary directory");
        // Containers of other users must be able to traverse it.
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711))
            .expect("chmod of the node's directory");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        for directory in ["cni", "data", "logs"] {
            fs::create_dir(dir.path().join(directory)).expect("create a directory of the node");
        }
        for (name, text) in &options.cni {
            fs::write(dir.path().join("cni").join(name), text).expect("write a CNI configuration");
        }
        let mut node = Self { anchor: anchor(), dir, number, daemon: None, options };
        node.write_config();
        node
    }

    fn write_config(&mut self) {
        let dir = self.dir.path().display();
        let text = format!(
            "data_dir = \"{dir}/data\"\nstate_dir = \"/run/pinion\"\ncgroup_parent = \"{}\"\nnetwork.cni_conf_dir = \"{dir}/cni\"\n{}\n",
            self.cgroup_parent(),
            self.options.config
        );
        fs::write(self.config(), text).expect("write the configuration file");
    }

    /// Returns the default parent cgroup of this node's pods.
    pub fn cgroup_parent(&self) -> String {
        format!("/pinion-test-{}-{}", std::process::id(), self.number)
    }

    /// Returns the path of the configuration file.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("config.toml")
    }

    /// Returns the directory for pod logs.
    pub fn logs(&self) -> PathBuf {
        self.dir.path().join("logs")
    }

    /// Returns the pid, as seen from the test, of the init process of the node's PID namespace.
    pub fn init_pid(&self) -> i32 {
        let children = format!("/proc/{0}/task/{0}/children", self.anchor.id());
        fs::read_to_string(children)
            .ok()
            .and_then(|text| text.split_whitespace().next()?.parse().ok())
            .expect("the node is running")
    }

    /// Returns a command that runs a program inside the node.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.init_pid().to_string(), "--mount", "--net", "--pid", "--"])
            .arg(program.as_ref());
        command
    }

    /// Runs a program inside the node.
    pub fn run(&self, program: &str, args: &[&str]) -> Outcome {
        Outcome::of(self.command(program).args(args))
    }

    /// Runs `pinion` with these arguments inside the node.
    pub fn pinion(&self, args: &[&str]) -> Outcome {
        Outcome::of(self.command(program("pinion")).args(args))
    }

    /// Starts the daemon and waits until it is ready.
    pub fn start_daemon(&mut self) {
        self.spawn_daemon(&[]);
        wait_until("the daemon is ready", || {
            if let Some(status) = self.daemon_status() {
                panic!("the daemon exited ({status}):\n{}", self.daemon_log());
            }
            self.pinion(&["version"]).code == Some(0)
        });
    }

    /// Starts the daemon through a wrapper (a program and its arguments; directly if empty), without waiting for it.
    pub fn spawn_daemon(&mut self, wrapper: &[String]) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("daemon.log"))
            .expect("create the log of the daemon");
        let pinion = program("pinion");
        let mut command = match wrapper.split_first() {
            Some((wrapper, arguments)) => {
                let mut command = self.command(wrapper);
                command.args(arguments).arg(pinion);
                command
            }
            // In a new session, as a service manager starts it.
            None => {
                let mut command = self.command("setsid");
                command.arg(pinion);
                command
            }
        };
        command.arg("serve").arg("--config").arg(self.config()).envs(self.options.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.daemon = Some(command.spawn().expect("nsenter starts"));
    }

    /// Returns the exit status of the daemon (or its wrapper); `None` if it is running or was not started.
    pub fn daemon_status(&mut self) -> Option<ExitStatus> {
        self.daemon.as_mut().and_then(|daemon| daemon.try_wait().ok().flatten())
    }

    /// Returns the log of the daemon.
    pub fn daemon_log(&self) -> String {
        fs::read_to_string(self.dir.path().join("daemon.log")).unwrap_or_default()
    }

    /// Returns the process with this name; panics if there is not exactly one. Zombies are ignored, and so are children
    /// with the same name, such as a program that is executed to check its version.
    #[track_caller]
    pub fn process(&self, name: &str) -> Process {
        let mut matches: Vec<_> =
            self.processes().into_iter().filter(|process| process.name == name && process.state != 'Z').collect();
        let pids: Vec<i32> = matches.iter().map(|process| process.pid).collect();
        matches.retain(|process| !pids.contains(&process.parent));
        assert_eq!(matches.len(), 1, "processes named {name}: {matches:?}");
        matches[0].clone()
    }

    /// Returns all processes of the node except its init process and the command that this waits for.
    pub fn processes(&self) -> Vec<Process> {
        let procfs = PathBuf::from(format!("/proc/{}/root/proc", self.init_pid()));
        Process::all(&procfs).into_iter().filter(|process| process.pid != 1 && process.command_line() != WAIT).collect()
    }

    /// Sends SIGKILL to a process of the node.
    pub fn kill(&self, process: &Process) {
        self.run("kill", &["-KILL", &process.pid.to_string()]).ok();
    }

    /// Kills the daemon with SIGKILL and waits for its exit.
    pub fn kill_daemon(&mut self) {
        self.kill(&self.process("pinion"));
        let _ = self.daemon.take().map(|mut daemon| daemon.wait());
    }

    /// Reaps a daemon that the test itself has killed.
    pub fn reap_daemon(&mut self) {
        let _ = self.daemon.take().map(|mut daemon| daemon.wait());
    }

    /// Kills monitor and daemon with SIGKILL at the same time, and waits for the exit of the daemon.
    pub fn kill_monitor_and_daemon(&mut self) {
        let pids = ["pinmon", "pinion"].map(|name| self.process(name).pid.to_string());
        self.run("kill", &["-KILL", &pids[0], &pids[1]]).ok();
        self.reap_daemon();
    }

    /// Kills the monitor, the daemon or both, in turn, and starts the daemon again.
    pub fn kill_in_turn(&mut self, round: usize) {
        match round % 3 {
            0 => return self.kill_monitor(),
            1 => self.kill_daemon(),
            _ => self.kill_monitor_and_daemon(),
        }
        self.start_daemon();
    }

    /// Stops the daemon with SIGTERM and waits for its exit.
    pub fn stop_daemon(&mut self) {
        self.run("kill", &[&self.process("pinion").pid.to_string()]).ok();
        let _ = self.daemon.take().map(|mut daemon| daemon.wait());
    }

    /// Kills the monitor with SIGKILL and waits until another one is running.
    pub fn kill_monitor(&self) {
        let old = self.process("pinmon");
        self.kill(&old);
        let old = old.pid;
        wait_until("another monitor is running", || {
            self.processes()
                .iter()
                .any(|process| process.name == "pinmon" && process.pid != old && process.has_signalfd())
        });
    }

    /// Returns the lines of `mountinfo` in the mount namespace of the daemon.
    pub fn mountinfo(&self) -> Vec<String> {
        let text = fs::read_to_string(format!("/proc/{}/mountinfo", self.init_pid())).expect("mountinfo of the node");
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the cgroups of this node that exist.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let name = self.cgroup_parent();
        let trees = fs::read_dir("/sys/fs/cgroup").expect("cgroups are mounted").flatten().map(|entry| entry.path());
        let all = trees.chain([PathBuf::from("/sys/fs/cgroup")]);
        all.map(|tree| tree.join(&name[1..])).filter(|path| path.exists()).collect()
    }

    /// Stops the node; panics if it leaked anything. All pods must have been removed before.
    #[track_caller]
    pub fn end(mut self) {
        self.assert_nothing_leaked();
        self.stop_daemon();
    }

    /// Like [`end`](Self::end), for a test that has stopped the daemon itself.
    #[track_caller]
    pub fn end_without_daemon(self) {
        self.assert_nothing_leaked();
    }

    #[track_caller]
    fn assert_nothing_leaked(&self) {
        wait_until("the node has no cgroups", || self.cgroups().is_empty());
        let pins = self.run("sh", &["-c", "ls -A /run/netns 2>/dev/null"]).stdout;
        assert_eq!(pins.trim(), "", "leaked pins");
        let links = self.run("sh", &["-c", "ip -o link | grep -c veth"]).stdout;
        assert_eq!(links.trim(), "0", "leaked veth links");
        let state = self.run("sh", &["-c", "ls -A /run/pinion/container /run/pinion/sandbox | grep -v :"]).stdout;
        assert_eq!(state.trim(), "", "leaked state");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the daemon:\n{}", self.daemon_log());
            if env::var_os("PINION_TEST_KEEP").is_some() {
                eprintln!("kept: directory {}, init process {}", self.dir.path().display(), self.init_pid());
                self.dir.disable_cleanup(true);
                return;
            }
        }
        // When the init process of a PID namespace is killed, the kernel kills all others.
        let _ = Command::new("kill").args(["-KILL", &self.init_pid().to_string()]).status();
        let _ = self.anchor.wait();
        let _ = self.daemon.take().map(|mut daemon| daemon.wait());
        // A failed test leaves cgroups behind. They are empty now, and no other test uses them.
        for group in self.cgroups() {
            let _ = Command::new("find").arg(group).args(["-depth", "-type", "d", "-delete"]).status();
        }
    }
}

/// Starts the init process of new namespaces: a shell that reaps orphaned processes.
fn anchor() -> Child {
    let script = format!(
        "mount -t tmpfs -o mode=755 tmpfs /run && ip link set lo up && echo ready && while :; do {WAIT} & wait; done"
    );
    let mut anchor = Namespaces::ALL
        .command("sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // unshare reports that its child was killed, which is how a node is stopped.
        .stderr(Stdio::null())
        .spawn()
        .expect("start unshare (requires root)");
    let mut line = String::new();
    let _ = BufReader::new(anchor.stdout.take().expect("a pipe")).read_line(&mut line);
    assert_eq!(line, "ready\n", "create the namespaces of the node");
    anchor
}
