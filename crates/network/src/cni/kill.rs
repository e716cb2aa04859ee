//! Kills a plugin with all processes that it filter.
//!
//! A process that left the plugin's process group still has the environment that the plugin was started with. An
//! environment is memory of its process, though, and reading it can block as long as the process wants: a page of it
//! may be a file on a FUSE mount. So only the environments of processes in the daemon's own cgroup are read: plugins
//! are in it, and containers never are.

use std::{collections::HashSet, fs, io::Read};

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, open, openat},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal},
};

/// Longest environment and longest list of cgroups that is read, in bytes.
const READ_MAX: u64 = 1 << 20;

/// Kills the process group of a plugin, and all processes that plugins started for the sandbox. Blocks: it reads
/// `/proc`.
pub(super) fn kill(group: Option<Pid>, sandbox: Option<&str>) {
    if let Some(group) = group {
        // ESRCH: the group has just ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
    if let Some(sandbox) = sandbox {
        kill_all_of(sandbox);
    }
}

/// Kills all processes that plugins started for a sandbox, including plugins of an earlier daemon. Scans `/proc` until
/// it finds no new process, because a process may fork during a scan.
pub(crate) fn kill_all_of(sandbox: &str) {
    let Some(filter) = ProcessFilter::new(sandbox) else { return };
    let self_pid = std::process::id();
    let mut killed = HashSet::new();
    loop {
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let new: Vec<u32> =
            pids.filter(|pid| *pid != self_pid && !killed.contains(pid) && filter.matches(*pid)).collect();
        if new.is_empty() {
            return;
        }
        for pid in new {
            filter.kill(pid);
            killed.insert(pid);
        }
    }
}

/// Identifies processes that plugins started for a sandbox.
struct ProcessFilter {
    /// Entry in their environment.
    entry: String,
    /// Cgroup of the daemon.
    cgroup: Vec<u8>,
}

impl ProcessFilter {
    /// Returns `None` if the daemon's cgroup cannot be read.
    fn new(sandbox: &str) -> Option<Self> {
        let cgroup = fs::read("/proc/self/cgroup").ok().and_then(|list| cgroup_of(&list))?;
        Some(Self { entry: format!("CNI_CONTAINERID={sandbox}"), cgroup })
    }

    fn matches(&self, pid: u32) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // The descriptor refers to one process from here on, even if its pid is reused.
        let Ok(process) = open(format!("/proc/{pid}"), flags, Mode::empty()) else { return false };
        if read(&process, "cgroup").and_then(|list| cgroup_of(&list)).as_ref() != Some(&self.cgroup) {
            return false;
        }
        let environment = read(&process, "environ").unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == self.entry.as_bytes())
    }

    fn kill(&self, pid: u32) {
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
        let Ok(pidfd) = pidfd_open(raw, PidfdFlags::empty()) else { return };
        // Checked again now that the pidfd is open: the pid may have been reused before that.
        if self.matches(pid) {
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        }
    }
}

/// Returns the line of the version 2 tree, or the whole list without one (cgroups(7)).
fn cgroup_of(list: &[u8]) -> Option<Vec<u8>> {
    let unified = list.split(|byte| *byte == b'\n').find(|line| line.starts_with(b"0::"));
    let cgroup = unified.unwrap_or(list);
    (!cgroup.is_empty()).then(|| cgroup.to_vec())
}

fn read(process: &OwnedFd, name: &str) -> Option<Vec<u8>> {
    let file = openat(process, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = Vec::new();
    fs::File::from(file).take(READ_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_tree_is_preferred() {
        let cgroup = |list: &str| cgroup_of(list.as_bytes()).map(|line| String::from_utf8(line).expect("text"));
        assert_eq!(
            cgroup("4:pids:/a\n0::/system.slice/pinion.service\n").as_deref(),
            Some("0::/system.slice/pinion.service")
        );
        assert_eq!(cgroup("4:pids:/a\n1:name=systemd:/b\n").as_deref(), Some("4:pids:/a\n1:name=systemd:/b\n"));
        assert_eq!(cgroup(""), None);
    }
}
