use std::{
    env, fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use system_tests::Node;

const SOCKET: &str = "unix:///run/pinion/pinion.sock";

/// The namespaces of a node, in which programs can be started from any thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeNamespaces {
    init_pid: i32,
}

/// A running program inside a node; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl NodeNamespaces {
    /// Returns the namespaces of a node.
    pub(crate) fn of(node: &Node) -> Self {
        Self { init_pid: node.init_pid() }
    }

    /// Returns the path from outside of a file that has the path `inside` in the mount namespace of the node.
    pub(crate) fn path(&self, inside: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.init_pid)).join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Returns a command that runs a program inside the node.
    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init_pid.to_string(), "--mount", "--net", "--pid", "--", program]).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Starts `crictl`. Its output is read only by [`Running::wait`].
    ///
    /// # Panics
    /// If it does not start.
    pub(crate) fn crictl(&self, args: &[&str]) -> Running {
        let program = env::var("CRICTL").expect("CRICTL names the crictl program: run `make test`");
        let mut command = self.command(&program, &["--config", "/dev/null", "--timeout", "20s"]);
        command.args(["--runtime-endpoint", SOCKET, "--image-endpoint", SOCKET]).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Running(command.spawn().expect("start nsenter"))
    }
}

impl Running {
    /// Waits until the program exits. Returns its exit code and standard output, or `None` if it is still running after
    /// the timeout.
    pub(crate) fn wait(mut self, within: Duration) -> Option<(Option<i32>, String)> {
        let start = Instant::now();
        while start.elapsed() < within {
            if let Ok(Some(status)) = self.0.try_wait() {
                let mut text = String::new();
                let _ = self.0.stdout.take().map(|mut pipe| pipe.read_to_string(&mut text));
                return Some((status.code(), text));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // nsenter forks the program into the PID namespace, so it is a child of nsenter.
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.0.id())).unwrap_or_default();
        for pid in children.split_whitespace() {
            let _ = Command::new("kill").args(["-KILL", pid]).stderr(Stdio::null()).status();
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
