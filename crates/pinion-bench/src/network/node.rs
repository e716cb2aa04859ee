//! A node: namespaces in which an engine is started without changing the machine.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use super::groups::Groups;
use crate::{engine::Failure, program};

/// Ends when standard input is closed, even if this program was killed; then the kernel kills everything in the PID namespace.
/// What programs write below /etc, /opt and /var/lib is discarded.
const INIT: &str = "mount -t tmpfs -o mode=755 tmpfs /run && for d in etc opt var/lib; do \
    mkdir -p /run/layers/$d/upper /run/layers/$d/work && mount -t overlay \
    -o lowerdir=/$d,upperdir=/run/layers/$d/upper,workdir=/run/layers/$d/work overlay /$d || exit; done && \
    ip link set lo up && echo ready && cat";

/// Timeout of a command of a node.
const TIMEOUT: Duration = Duration::from_secs(120);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Namespaces, and the processes in them.
pub(super) struct Node {
    anchor: Child,
    init: u32,
    daemons: Vec<Child>,
    /// Dropped when the processes have ended.
    groups: Groups,
}

impl Node {
    /// Creates the namespaces, with `lo` up and an empty `/run`.
    pub(super) fn create() -> Result<Self, Failure> {
        let fail = |e: std::io::Error| Failure(format!("create the namespaces of a node: {e}"));
        // In a process group of its own, as all processes that this one starts: a signal for the group of this one, such as an interrupt
        // at the terminal, neither ends nor stops a node in the middle of a turn.
        let mut anchor = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["--", "sh", "-c", INIT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(fail)?;
        let mut line = String::new();
        if let Some(output) = anchor.stdout.take() {
            BufReader::new(output.take(100)).read_line(&mut line).map_err(fail)?;
        }
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", anchor.id())).unwrap_or_default();
        let init = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
        match init {
            Some(init) if line == "ready\n" => {
                let groups = Groups::create(NUMBER.fetch_add(1, Ordering::Relaxed))?;
                Ok(Self { anchor, init, daemons: Vec::new(), groups })
            }
            _ => {
                let _ = anchor.kill();
                let _ = anchor.wait();
                Err(Failure("create the namespaces of a node: failed; run pinion-bench network as root".to_owned()))
            }
        }
    }

    /// Returns the name of the cgroup of the node's containers, in the root of each hierarchy. Its child `host` is for processes of
    /// the node.
    pub(super) fn cgroup(&self) -> &str {
        self.groups.name()
    }

    /// Returns the pid of the init process.
    pub(super) fn init(&self) -> u32 {
        self.init
    }

    /// Returns the path of a file of the node, as this process sees it.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.init))
    }

    /// Writes a file of the node.
    pub(super) fn write(&self, path: &str, text: &str) -> Result<(), Failure> {
        let file = self.path(path);
        let write = || {
            file.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&file, text)
        };
        write().map_err(|e| Failure(format!("write {path} of a node: {e}")))
    }

    /// Returns a command that runs in the node.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--mount", "--net", "--pid", "--"]).arg(program);
        command.stdin(Stdio::null()).env("LC_ALL", "C");
        command
    }

    /// Runs a script of the shell and returns its output.
    pub(super) fn shell(&self, script: &str) -> Result<String, Failure> {
        let mut command = self.command(Path::new("sh"));
        command.args(["-ec", script]);
        output(&mut command, script)
    }

    /// Starts a daemon, whose messages go to `/run/daemon.log`.
    pub(super) fn start(&mut self, program: &Path, arguments: &[&str]) -> Result<(), Failure> {
        let fail = |e: std::io::Error| Failure(format!("start {}: {e}", program.display()));
        let log = fs::File::create(self.path("/run/daemon.log")).map_err(fail)?;
        let errors = log.try_clone().map_err(fail)?;
        // With the priority of the containers: a daemon of a swarm that gets no time for seconds gives up the other nodes.
        let join = "for f in /sys/fs/cgroup/cpu/$0/host /sys/fs/cgroup/$0/host; do \
            if [ -d $f ]; then echo $$ > $f/cgroup.procs; fi; done; exec \"$@\"";
        let mut command = self.command(Path::new("sh"));
        command.args(["-ec", join, self.groups.name()]).arg(program);
        command.args(arguments).stdout(log).stderr(errors).process_group(0);
        self.daemons.push(command.spawn().map_err(fail)?);
        Ok(())
    }

    /// Adds the end of the daemon's log to an error.
    pub(super) fn with_log(&self, error: Failure) -> Failure {
        let log = fs::read(self.path("/run/daemon.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log[log.len().saturating_sub(600)..]).into_owned();
        Failure(format!("{error}; the daemon's log ends with: {}", log.trim().replace('\n', " | ")))
    }

    /// Connects two nodes by a veth pair `eth0` with the addresses 192.0.2.1 and 192.0.2.2. Each is the default gateway of the
    /// other.
    pub(super) fn connect(&self, other: &Self) -> Result<(), Failure> {
        // In this process's PID namespace, which knows the other node's pid.
        let link = ["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns"];
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--net", "--"]).args(link).arg(other.init.to_string());
        output(&mut command, "connect two nodes")?;
        for (node, own, peer) in [(self, 1, 2), (other, 2, 1)] {
            node.shell(&format!(
                "ip addr add 192.0.2.{own}/24 dev eth0; ip link set eth0 up; ip route add default via 192.0.2.{peer}"
            ))?;
        }
        Ok(())
    }
}

/// Runs a command and returns its output, or an error with what it printed.
pub(super) fn output(command: &mut Command, name: &str) -> Result<String, Failure> {
    let output = program::output(command, TIMEOUT).map_err(|e| Failure(format!("run {name}: {e}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let text: String = text.trim().chars().rev().take(600).collect::<Vec<_>>().into_iter().rev().collect();
    Err(Failure(format!("{name}: {}: {text}", output.status)))
}

/// Returns the first line of what a program prints as its version.
pub(super) fn version(program: &Path) -> Result<String, Failure> {
    let text = output(Command::new(program).arg("--version"), &program.to_string_lossy())?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

impl Drop for Node {
    fn drop(&mut self) {
        // The init process ends, so the kernel kills everything in its PID namespace.
        drop(self.anchor.stdin.take());
        for process in self.daemons.iter_mut().chain([&mut self.anchor]) {
            let _ = process.wait();
        }
    }
}
