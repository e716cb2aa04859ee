use std::{
    env, fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use system_tests::Node;

const SOCKET: &str = "unix:///run/pinion/pinion.sock";

/// Starts programs inside a node, from any thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inside {
    first: i32,
}

/// A program inside a node; killed when dropped.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Inside {
    /// Of this node.
    pub(crate) fn of(node: &Node) -> Self {
        Self { first: node.first() }
    }

    /// A path of the node, with its mounts, as seen from outside.
    pub(crate) fn path(&self, inside: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.first)).join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// A command inside the node.
    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.first.to_string(), "--mount", "--net", "--pid", "--", program]).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Starts `crictl`, whose output nobody reads.
    ///
    /// # Panics
    /// If it does not start.
    pub(crate) fn crictl(&self, args: &[&str]) -> Running {
        let program = env::var("CRICTL").expect("CRICTL names the crictl program: run `make test`");
        let mut command = self.command(&program, &["--config", "/dev/null", "--timeout", "20s"]);
        command.args(["--runtime-endpoint", SOCKET, "--image-endpoint", SOCKET]).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Running(command.spawn().expect("nsenter starts"))
    }
}

impl Running {
    /// Waits for its end; returns exit code and standard output, or `None` if it still runs after the bound.
    pub(crate) fn wait(mut self, within: Duration) -> Option<(Option<i32>, String)> {
        let begin = Instant::now();
        while begin.elapsed() < within {
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
        // nsenter forked it into the PID namespace.
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.0.id())).unwrap_or_default();
        for pid in children.split_whitespace() {
            let _ = Command::new("kill").args(["-KILL", pid]).stderr(Stdio::null()).status();
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
