//! The processes of a node, from `/proc`.

use std::path::PathBuf;

use crate::Host;

/// Longest part of a command line that is kept, in bytes.
const COMMAND_LINE_MAX: usize = 64 * 1024;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// The name (`comm`), at most 15 bytes.
    pub(crate) name: String,
    /// The command line, starting with the program.
    pub(crate) arguments: Vec<String>,
    /// The program; `None` if it cannot be read.
    pub(crate) program: Option<PathBuf>,
}

impl Process {
    /// Whether it is a process of root in the namespaces of the node. Names and command lines of others prove nothing: any
    /// container can call itself a kubelet.
    pub(crate) fn is_trusted(&self, host: &Host) -> bool {
        is_trusted(host, self.pid)
    }
}

/// Lists the processes that have a command line: kernel threads and zombies have none.
pub(crate) fn list(host: &Host) -> Vec<Process> {
    let pids = host.list("/proc").into_iter().filter_map(|name| name.parse().ok());
    let mut processes: Vec<Process> = pids.filter_map(|pid| read(host, pid)).collect();
    processes.sort_by_key(|process| process.pid);
    processes
}

fn read(host: &Host, pid: u32) -> Option<Process> {
    let command_line = host.read(format!("/proc/{pid}/cmdline"))?;
    let end = command_line.floor_char_boundary(COMMAND_LINE_MAX);
    let arguments: Vec<String> = command_line[..end].split_terminator('\0').map(str::to_owned).collect();
    if arguments.is_empty() {
        return None;
    }
    let name = host.value(format!("/proc/{pid}/comm"))?;
    Some(Process { pid, name, arguments, program: host.link(format!("/proc/{pid}/exe")) })
}

fn is_trusted(host: &Host, pid: u32) -> bool {
    let namespace = |process: &str, kind: &str| host.link(format!("/proc/{process}/ns/{kind}"));
    let pid = pid.to_string();
    let status = host.read(format!("/proc/{pid}/status")).unwrap_or_default();
    // The real, effective, saved and file system user.
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    ["mnt", "pid", "user"].iter().all(|kind| namespace(&pid, kind) == namespace("self", kind))
        && users.split_whitespace().all(|user| user == "0")
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::CommandExt, process::Command};

    use super::*;

    #[test]
    fn only_root_in_the_namespaces_of_the_node_is_trusted() {
        let host = Host::real();
        assert!(is_trusted(&host, std::process::id()));
        let mut user = Command::new("sleep").arg("60").uid(65_534).spawn().expect("started as a user");
        let mut container =
            Command::new("unshare").args(["-m", "sleep", "60"]).spawn().expect("started in a namespace");
        let entered = || host.link(format!("/proc/{}/ns/mnt", container.id())) != host.link("/proc/self/ns/mnt");
        while !entered() {
            std::thread::yield_now();
        }
        let trusted = [user.id(), container.id()].map(|pid| is_trusted(&host, pid));
        for child in [&mut user, &mut container] {
            child.kill().and_then(|()| child.wait()).expect("ended");
        }
        assert_eq!(trusted, [false, false]);
    }
}
