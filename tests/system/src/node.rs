use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use tempfile::TempDir;

use crate::{Outcome, Process, wait_until};

/// What the first shell of a node waits for.
const WAIT: &str = "sleep 3600";

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// What a test may want different from the defaults.
#[derive(Debug, Default)]
pub struct Options {
    /// Lines added to the daemon's configuration file.
    pub config: String,
    /// Files placed into the directory of CNI configurations: name and text.
    pub cni: Vec<(String, String)>,
    /// Environment of the daemon.
    pub env: Vec<(String, String)>,
}

/// A node of its own: namespaces, directories, daemon, monitor.
pub struct Node {
    /// Everything of this node on disk.
    pub dir: TempDir,
    /// Number of this node in the process, for names that must differ.
    pub number: u32,
    anchor: Child,
    daemon: Option<Child>,
    options: Options,
}

impl Node {
    /// A node with a running daemon.
    pub fn start() -> Self {
        Self::with(Options::default())
    }

    /// A node with a running daemon and other options.
    pub fn with(options: Options) -> Self {
        let mut node = Self::cold(options);
        node.start_daemon();
        node
    }

    /// A node whose daemon is not started yet.
    pub fn cold(options: Options) -> Self {
        let dir = tempfile::Builder::new().prefix("pinion-test-").tempdir().expect("a temporary directory");
        // Containers of other users pass through here.
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711))
            .expect("chmod of the node's directory");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        for directory in ["cni", "data", "logs"] {
            fs::create_dir(dir.path().join(directory)).expect("a directory of the node");
        }
        for (name, text) in &options.cni {
            fs::write(dir.path().join("cni").join(name), text).expect("a CNI configuration");
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
        fs::write(self.config(), text).expect("the configuration file");
    }

    /// The cgroup under which this node's pods are, when they name none.
    pub fn cgroup_parent(&self) -> String {
        format!("/pinion-test-{}-{}", std::process::id(), self.number)
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("config.toml")
    }

    /// A directory for pod logs.
    pub fn logs(&self) -> PathBuf {
        self.dir.path().join("logs")
    }

    /// The first process of the node's PID namespace.
    pub fn first(&self) -> i32 {
        let children = format!("/proc/{0}/task/{0}/children", self.anchor.id());
        fs::read_to_string(children)
            .ok()
            .and_then(|text| text.split_whitespace().next()?.parse().ok())
            .expect("the node lives")
    }

    /// A command inside the node.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first().to_string(), "--mount", "--net", "--pid", "--"]).arg(program.as_ref());
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

    /// Starts the daemon and waits until it answers.
    pub fn start_daemon(&mut self) {
        self.spawn_daemon(&[]);
        wait_until("the daemon answers", || {
            if let Some(status) = self.daemon_ended() {
                panic!("the daemon ended ({status}):\n{}", self.daemon_log());
            }
            self.pinion(&["version"]).code == Some(0)
        });
    }

    /// Starts the daemon through a wrapper (a program and its arguments; none: directly), without waiting for it.
    pub fn spawn_daemon(&mut self, wrapper: &[String]) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("daemon.log"))
            .expect("the daemon's log");
        let pinion = program("pinion");
        let mut command = match wrapper.split_first() {
            Some((wrapper, arguments)) => {
                let mut command = self.command(wrapper);
                command.args(arguments).arg(pinion);
                command
            }
            // In a session of its own, as a service manager starts it.
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

    /// How the daemon (or its wrapper) ended; `None` while it runs, and where none was started.
    pub fn daemon_ended(&mut self) -> Option<ExitStatus> {
        self.daemon.as_mut().and_then(|daemon| daemon.try_wait().ok().flatten())
    }

    /// What the daemon logged.
    pub fn daemon_log(&self) -> String {
        fs::read_to_string(self.dir.path().join("daemon.log")).unwrap_or_default()
    }

    /// The one process of this name; panics if there is not exactly one. What it started of the same name, as a program
    /// asked for its version, is not meant, nor are zombies.
    #[track_caller]
    pub fn process(&self, name: &str) -> Process {
        let mut found: Vec<_> =
            self.processes().into_iter().filter(|process| process.name == name && process.state != 'Z').collect();
        let pids: Vec<i32> = found.iter().map(|process| process.pid).collect();
        found.retain(|process| !pids.contains(&process.parent));
        assert_eq!(found.len(), 1, "processes named {name}: {found:?}");
        found[0].clone()
    }

    /// Every process of the node but its first shell and what that shell waits for.
    pub fn processes(&self) -> Vec<Process> {
        let procfs = PathBuf::from(format!("/proc/{}/root/proc", self.first()));
        Process::all(&procfs).into_iter().filter(|process| process.pid != 1 && process.command_line() != WAIT).collect()
    }

    /// Sends SIGKILL to a process of the node.
    pub fn kill(&self, process: &Process) {
        self.run("kill", &["-KILL", &process.pid.to_string()]).ok();
    }

    /// Kills the daemon without a warning and waits for its end.
    pub fn kill_daemon(&mut self) {
        self.kill(&self.process("pinion"));
        let _ = self.daemon.take().map(|mut daemon| daemon.wait());
    }

    /// Reaps a daemon that a test killed by itself.
    pub fn forget_daemon(&mut self) {
        let _ = self.daemon.take().map(|mut daemon| daemon.wait());
    }

    /// Ends the daemon politely.
    pub fn stop_daemon(&mut self) {
        self.run("kill", &[&self.process("pinion").pid.to_string()]).ok();
        let _ = self.daemon.take().map(|mut daemon| daemon.wait());
    }

    /// Kills the monitor without a warning and waits until another one is there.
    pub fn kill_monitor(&self) {
        let old = self.process("pinmon");
        self.kill(&old);
        let old = old.pid;
        wait_until("another monitor is there", || {
            self.processes()
                .iter()
                .any(|process| process.name == "pinmon" && process.pid != old && process.takes_signals())
        });
    }

    /// The node's mountinfo, as its daemon sees it.
    pub fn mountinfo(&self) -> Vec<String> {
        let text = fs::read_to_string(format!("/proc/{}/mountinfo", self.first())).expect("mountinfo of the node");
        text.lines().map(str::to_owned).collect()
    }

    /// cgroups that this node made and that are still there.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let name = self.cgroup_parent();
        let trees = fs::read_dir("/sys/fs/cgroup").expect("cgroups are mounted").flatten().map(|entry| entry.path());
        let all = trees.chain([PathBuf::from("/sys/fs/cgroup")]);
        all.map(|tree| tree.join(&name[1..])).filter(|path| path.exists()).collect()
    }

    /// Ends the node; panics if anything of it is left: pods must have been removed before.
    #[track_caller]
    pub fn end(mut self) {
        self.nothing_is_left();
        self.stop_daemon();
    }

    /// The same where the test ended the daemon itself.
    #[track_caller]
    pub fn end_without_daemon(self) {
        self.nothing_is_left();
    }

    #[track_caller]
    fn nothing_is_left(&self) {
        wait_until("no cgroup of the node is left", || self.cgroups().is_empty());
        let pins = self.run("sh", &["-c", "ls -A /run/netns 2>/dev/null"]).stdout;
        assert_eq!(pins.trim(), "", "pins are left");
        let links = self.run("sh", &["-c", "ip -o link | grep -c veth"]).stdout;
        assert_eq!(links.trim(), "0", "veth links are left");
        let left = self.run("sh", &["-c", "ls -A /run/pinion/container /run/pinion/sandbox | grep -v :"]).stdout;
        assert_eq!(left.trim(), "", "state is left");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the daemon said:\n{}", self.daemon_log());
            if env::var_os("PINION_TEST_KEEP").is_some() {
                eprintln!("kept for you: {}, first process {}", self.dir.path().display(), self.first());
                self.dir.disable_cleanup(true);
                return;
            }
        }
        // With the first process of a PID namespace the kernel ends all others.
        let _ = Command::new("kill").args(["-KILL", &self.first().to_string()]).status();
        let _ = self.anchor.wait();
        let _ = self.daemon.take().map(|mut daemon| daemon.wait());
        // A test that failed leaves groups: they are empty now, and no other test's.
        for group in self.cgroups() {
            let _ = Command::new("find").arg(group).args(["-depth", "-type", "d", "-delete"]).status();
        }
    }
}

/// The first process of new namespaces: a shell that reaps whatever falls to it.
fn anchor() -> Child {
    let script = format!(
        "mount -t tmpfs -o mode=755 tmpfs /run && ip link set lo up && echo ready && while :; do {WAIT} & wait; done"
    );
    let mut anchor = Command::new("unshare")
        .args([
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--propagation",
            "private",
            "sh",
            "-c",
            &script,
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // unshare grumbles when its child is killed, which is how a node ends.
        .stderr(Stdio::null())
        .spawn()
        .expect("unshare starts (as root)");
    let mut line = String::new();
    let _ = BufReader::new(anchor.stdout.take().expect("a pipe")).read_line(&mut line);
    assert_eq!(line, "ready\n", "namespaces for the node");
    anchor
}

/// A program under test.
pub(crate) fn program(name: &str) -> PathBuf {
    let directory =
        env::var_os("PINION_BIN").expect("PINION_BIN names the directory of the programs under test: run `make test`");
    let path = PathBuf::from(directory).join(name);
    assert!(path.is_file(), "{} is not there: run `make test`", path.display());
    path
}
