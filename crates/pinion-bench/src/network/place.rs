//! Places: where the programs of a measurement run.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use netns::Namespace;

use super::{
    node::{Node, output},
    retry,
};
use crate::engine::Failure;

/// Directories of the cgroup hierarchies that have a controller for processors: version 1, hybrid, and version 2.
const PROCESSOR_TREES: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];

/// A network namespace and the cgroup of a processor's time: those of a container, or of a node.
pub(super) struct Place {
    namespace: Namespace,
    namespace_path: PathBuf,
    cgroup: PathBuf,
}

impl Place {
    /// Returns the place of a node's own processes.
    pub(super) fn of_node(node: &Node) -> Result<Self, Failure> {
        let cgroup = tree()?.join(node.cgroup()).join("host");
        Self::of_process(&node.init().to_string(), cgroup)
    }

    /// Returns the place of a container. It is found by its cgroup, whose name contains the id, so this is the same for all engines.
    pub(super) fn of_container(node: &Node, id: &str) -> Result<Self, Failure> {
        let tree = tree()?;
        retry(std::time::Duration::from_secs(5), || {
            let found = find(&tree.join(node.cgroup()), id);
            let (cgroup, pid) =
                found.ok_or_else(|| Failure(format!("container {id}: no cgroup with a process has its name")))?;
            Self::of_process(&pid, cgroup)
        })
    }

    fn of_process(pid: &str, cgroup: PathBuf) -> Result<Self, Failure> {
        let namespace_path = PathBuf::from(format!("/proc/{pid}/ns/net"));
        Ok(Self { namespace: Namespace::open(&namespace_path)?, namespace_path, cgroup })
    }

    /// Returns the first IPv4 address of a link.
    pub(super) fn address(&self, link: &str) -> Result<Ipv4Addr, Failure> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace_path.display()));
        command.args(["--", "ip", "-o", "-4", "address", "show", "dev", link]);
        let text = output(&mut command, "ip address")?;
        let address = text.split_whitespace().skip_while(|word| *word != "inet").nth(1);
        let address = address.and_then(|address| address.split('/').next()?.parse().ok());
        address.ok_or_else(|| Failure(format!("{link} has no IPv4 address: {text:?}")))
    }

    /// Starts a program in this place, on one processor if one is given. It is ended after a number of seconds: 124 is its exit
    /// code then.
    pub(super) fn spawn(&self, words: &[&str], processor: Option<usize>, seconds: u64) -> Result<Running, Failure> {
        let name = words.first().copied().unwrap_or_default();
        let fail = |e: std::io::Error| Failure(format!("start {name}: {e}"));
        // The shell joins the cgroup and becomes timeout(1), so that the child is the process to be ended.
        let mut command = Command::new("sh");
        command.args(["-ec", "echo $$ > \"$0/cgroup.procs\"; exec timeout -k 1 \"$@\""]).arg(&self.cgroup);
        command.arg(seconds.to_string());
        if let Some(processor) = processor {
            command.args(["taskset", "-c", &processor.to_string()]);
        }
        command.args(words).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.namespace.enter(move || command.spawn())?.map_err(fail)?;
        Ok(Running { child: Some(child), name: name.to_owned() })
    }
}

/// A program of a measurement. It is ended when this is dropped.
pub(super) struct Running {
    child: Option<std::process::Child>,
    name: String,
}

impl Running {
    /// Waits for the end of the program and returns what it printed.
    pub(super) fn output(mut self) -> Result<String, Failure> {
        let fail = |e: std::io::Error| Failure(format!("wait for {}: {e}", self.name));
        let Some(child) = self.child.take() else { return Ok(String::new()) };
        let output = child.wait_with_output().map_err(fail)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        let last = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().lines().last().unwrap_or_default().to_owned();
        // iperf3 prints its error as JSON.
        let error = serde_json::from_str::<serde_json::Value>(&text).ok();
        let error = error.and_then(|error| error["error"].as_str().map(str::to_owned));
        let cause = error.unwrap_or_else(|| format!("{} {}", last(&output.stdout), last(&output.stderr)));
        Err(Failure(format!("{}: {}: {}", self.name, output.status, cause.trim())))
    }

    /// Waits until the program has a socket that is bound to a port: `tcp` or `udp`.
    pub(super) fn wait_for_port(&mut self, protocol: &str, port: u16) -> Result<(), Failure> {
        let Some(child) = self.child.as_mut() else { return Ok(()) };
        let path = format!("/proc/{}/net/{protocol}", child.id());
        let local = format!(":{port:04X}");
        retry(std::time::Duration::from_secs(20), || {
            let table = fs::read_to_string(&path).unwrap_or_default();
            let mut rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
            // 0A is LISTEN, 07 is what UDP shows.
            let is_bound = rows.any(|row| row.len() > 3 && row[1].ends_with(&local) && ["0A", "07"].contains(&row[3]));
            is_bound.then_some(()).ok_or_else(|| Failure(format!("{} does not listen on {protocol} {port}", self.name)))
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(child) = self.child.as_mut() else { return };
        // timeout(1) passes the signal on, and kills the program if it does not end.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(child), rustix::process::Signal::TERM);
        let _ = child.wait();
    }
}

/// Returns the hierarchy of cgroups that schedules processors.
fn tree() -> Result<PathBuf, Failure> {
    let tree = PROCESSOR_TREES.iter().map(Path::new).find(|tree| tree.join("cgroup.procs").exists());
    tree.map(Path::to_owned).ok_or_else(|| Failure("no cgroups are mounted at /sys/fs/cgroup".to_owned()))
}

/// Returns the cgroup below another whose name contains a text and that has a process, and the first of its processes.
fn find(group: &Path, text: &str) -> Option<(PathBuf, String)> {
    let directories =
        fs::read_dir(group).ok()?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    for path in directories.map(|entry| entry.path()) {
        if path.file_name()?.to_string_lossy().contains(text)
            && let Some(pid) = fs::read_to_string(path.join("cgroup.procs")).ok().and_then(first_line)
        {
            return Some((path, pid));
        }
        if let Some(found) = find(&path, text) {
            return Some(found);
        }
    }
    None
}

fn first_line(text: String) -> Option<String> {
    text.lines().next().map(str::to_owned)
}
