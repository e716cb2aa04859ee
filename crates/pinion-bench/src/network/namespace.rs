//! A network namespace of the node as a place for programs.

use std::{
    any::Any,
    fs,
    net::Ipv4Addr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use netns::Namespace;

use super::{
    node::{Node, output},
    retry,
    running::Running,
};
use crate::engine::Failure;

/// Directories of the cgroup hierarchies that have a controller for processors: version 1, hybrid, and version 2.
const PROCESSOR_TREES: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];

/// A network namespace and the cgroup of a processor's time: those of a container, or of a node.
pub(super) struct NamespacePlace {
    pub(super) namespace: Namespace,
    cgroup: PathBuf,
    /// What this place needs as long as it is used.
    _held: Option<Box<dyn Any>>,
}

impl NamespacePlace {
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
        let namespace = Namespace::open(Path::new(&format!("/proc/{pid}/ns/net")))?;
        Ok(Self { namespace, cgroup, _held: None })
    }

    /// Returns the directory of the cgroup.
    pub(super) fn cgroup(&self) -> &Path {
        &self.cgroup
    }

    /// Replaces the namespace by one that needs something as long as it is used.
    pub(super) fn moved_to(self, namespace: Namespace, held: impl Any) -> Self {
        Self { namespace, _held: Some(Box::new(held)), ..self }
    }

    /// Returns the first IPv4 address of a link.
    pub(super) fn address(&self, link: &str) -> Result<Ipv4Addr, Failure> {
        let mut command = Command::new("ip");
        command.args(["-o", "-4", "address", "show", "dev", link]);
        let text = self.namespace.enter(move || output(&mut command, "ip address"))??;
        let address = text.split_whitespace().skip_while(|word| *word != "inet").nth(1);
        let address = address.and_then(|address| address.split('/').next()?.parse().ok());
        address.ok_or_else(|| Failure(format!("{link} has no IPv4 address: {text:?}")))
    }

    /// Starts a program, see `Place::spawn`.
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
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let child = self.namespace.enter(move || command.spawn())?.map_err(fail)?;
        let table = Box::new(PathBuf::from(format!("/proc/{}/net", child.id())));
        Ok(Running::new(child, name, table))
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
