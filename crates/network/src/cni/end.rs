//! Ending a plugin with all that it started.
//!
//! What left a plugin's process group still has the environment that the plugin was started with. An environment is
//! memory of its process, though, and reading it waits as long as the process wants: a page of it may be a file on a
//! FUSE mount. So only processes in the daemon's own cgroup are asked, where plugins are and no container ever is.

use std::{collections::HashSet, fs, io::Read};

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, open, openat},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal},
};

/// Longest environment and longest list of cgroups that is read.
const LONGEST: u64 = 1 << 20;

/// Kills the group of a plugin, and whatever else was started for this sandbox's plugins. Blocks: it reads `/proc`.
pub(super) fn end(group: Option<Pid>, sandbox: Option<&str>) {
    if let Some(group) = group {
        // ESRCH: it ended just now.
        let _ = kill_process_group(group, Signal::KILL);
    }
    if let Some(sandbox) = sandbox {
        end_all_of(sandbox);
    }
}

/// Every process that was started by a plugin for this sandbox, also by a daemon before this one. Looks again until
/// there is none that was not seen: a process may fork while it is looked for.
pub(crate) fn end_all_of(sandbox: &str) {
    let Some(started) = Started::of(sandbox) else { return };
    let own = std::process::id();
    let mut killed = HashSet::new();
    loop {
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let found: Vec<u32> = pids.filter(|pid| *pid != own && !killed.contains(pid) && started.has(*pid)).collect();
        if found.is_empty() {
            return;
        }
        for pid in found {
            started.kill(pid);
            killed.insert(pid);
        }
    }
}

/// What processes are known by that plugins started for a sandbox.
struct Started {
    /// In their environment.
    entry: String,
    /// The daemon's own.
    cgroup: Vec<u8>,
}

impl Started {
    /// `None` where the daemon's cgroup cannot be known.
    fn of(sandbox: &str) -> Option<Self> {
        let cgroup = fs::read("/proc/self/cgroup").ok().and_then(|list| cgroup_of(&list))?;
        Some(Self { entry: format!("CNI_CONTAINERID={sandbox}"), cgroup })
    }

    fn has(&self, pid: u32) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // One process from here on, whatever becomes of its number.
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
        // Looked at again when the descriptor is open: the number may be another process's by now.
        if self.has(pid) {
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        }
    }
}

/// The line of the version 2 tree, else the whole list (cgroups(7)).
fn cgroup_of(list: &[u8]) -> Option<Vec<u8>> {
    let unified = list.split(|byte| *byte == b'\n').find(|line| line.starts_with(b"0::"));
    let cgroup = unified.unwrap_or(list);
    (!cgroup.is_empty()).then(|| cgroup.to_vec())
}

fn read(process: &OwnedFd, name: &str) -> Option<Vec<u8>> {
    let file = openat(process, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = Vec::new();
    fs::File::from(file).take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_tree_decides_where_it_is_mounted() {
        let told = |list: &str| cgroup_of(list.as_bytes()).map(|line| String::from_utf8(line).expect("text"));
        assert_eq!(
            told("4:pids:/a\n0::/system.slice/pinion.service\n").as_deref(),
            Some("0::/system.slice/pinion.service")
        );
        assert_eq!(told("4:pids:/a\n1:name=systemd:/b\n").as_deref(), Some("4:pids:/a\n1:name=systemd:/b\n"));
        assert_eq!(told(""), None);
    }
}
