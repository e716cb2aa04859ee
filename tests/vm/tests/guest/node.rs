//! Runs a daemon and crictl in the virtual machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output},
    time::Duration,
};

use serde_json::Value;
use testbed::wait_until;

/// A running daemon, which is stopped when this is dropped.
pub(crate) struct Node {
    daemon: Child,
    directory: PathBuf,
    number: u8,
}

fn program(name: &str) -> Command {
    Command::new(testbed::program(name))
}

fn serve(directory: &Path) -> Child {
    program("pinion").arg("serve").arg("--config").arg(directory.join("config.toml")).spawn().expect("start the daemon")
}

fn configure(directory: &Path, number: u8, tables: &str) {
    let (path, name) = (directory.display(), directory.file_name().expect("a name").display());
    let text = format!(
        "socket = \"{path}/socket\"\nstate_dir = \"/run/{name}\"\nnetns_dir = \"/run/{name}-netns\"\ndata_dir = \"{path}/data\"\ncgroup_parent = \"/{name}\"\n\
         [network]\nbridge = \"{name}0\"\nsubnet = \"10.9{number}.0.0/24\"\n{tables}"
    );
    fs::write(directory.join("config.toml"), text).expect("written");
}

impl Node {
    /// Starts a daemon with the image `demo:1` and its own network. `number` must be unique.
    pub(crate) fn start(name: &str, number: u8) -> Self {
        Self::start_with(name, number, "")
    }

    /// Like [`Node::start`], with more tables of the configuration.
    pub(crate) fn start_with(name: &str, number: u8, tables: &str) -> Self {
        let directory = PathBuf::from("/var/tmp").join(name);
        fs::create_dir_all(&directory).expect("a directory");
        configure(&directory, number, tables);
        let node = Self { daemon: serve(&directory), directory, number };
        node.wait_until_ready();
        ok(node.pinion(&["load", "-i", "/suite/image.tar"]));
        node
    }

    fn wait_until_ready(&self) {
        wait_until("the daemon responds", Duration::from_secs(60), || self.pinion(&["version"]).status.success());
    }

    /// Kills the daemon with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.daemon.kill().expect("kill the daemon");
        self.daemon.wait().expect("wait for the daemon");
    }

    /// Kills the monitor with SIGKILL.
    pub(crate) fn kill_monitor(&self) {
        self.signal_monitor(rustix::process::Signal::KILL);
    }

    /// Sends a signal to the monitor.
    pub(crate) fn signal_monitor(&self, signal: rustix::process::Signal) {
        let state = self.state();
        let is_ours = |directory: &PathBuf| {
            let line = fs::read_to_string(directory.join("cmdline")).unwrap_or_default();
            let mut words = line.split('\0');
            words.next().is_some_and(|program| program.ends_with("pinmon")) && words.any(|word| word == state)
        };
        let all = fs::read_dir("/proc").expect("procfs").flatten().map(|entry| entry.path());
        let pids = all.filter(is_ours).filter_map(|directory| directory.file_name()?.to_str()?.parse().ok());
        for pid in pids.filter_map(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Starts the daemon again.
    pub(crate) fn restart(&mut self) {
        self.daemon = serve(&self.directory);
        self.wait_until_ready();
    }

    /// Kills the daemon, and starts it with other tables of the configuration.
    pub(crate) fn restart_with(&mut self, tables: &str) {
        self.kill();
        configure(&self.directory, self.number, tables);
        self.restart();
    }

    /// Kills the daemon, and runs `pinion reset`.
    pub(crate) fn reset(&mut self) -> Output {
        self.kill();
        let config = self.directory.join("config.toml");
        program("pinion").args(["reset", "--yes", "--config"]).arg(config).output().expect("pinion runs")
    }

    /// Returns the directory for files of the test.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the state directory, which is also the prefix of the directory of network namespaces.
    pub(crate) fn state(&self) -> String {
        format!("/run/{}", self.directory.file_name().expect("a name").to_string_lossy())
    }

    pub(crate) fn pinion(&self, arguments: &[&str]) -> Output {
        let socket = self.directory.join("socket");
        program("pinion").args(arguments).env("PINION_SOCKET", socket).output().expect("pinion runs")
    }

    pub(crate) fn crictl(&self, arguments: &[&str]) -> Output {
        self.crictl_command(arguments).output().expect("crictl runs")
    }

    fn crictl_command(&self, arguments: &[&str]) -> Command {
        let socket = format!("unix://{}/socket", self.directory.display());
        let mut command = program("crictl");
        command.args(["-t", "60s", "-r", &socket, "-i", &socket]).args(arguments);
        command
    }

    /// Writes a file for crictl and returns its path.
    pub(crate) fn file(&self, name: &str, content: &Value) -> String {
        let path = self.directory.join(name);
        fs::write(&path, content.to_string()).expect("written");
        path.to_string_lossy().into_owned()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.crictl_command(&["rmp", "-af"]).output();
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Returns the trimmed standard output; panics if the command failed.
#[track_caller]
pub(crate) fn ok(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}
