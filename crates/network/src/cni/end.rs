//! Ending a plugin with all that it started.

use std::{collections::HashSet, fs};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

/// Kills the group of a plugin, and whatever else was started for this sandbox's plugins: what left the group still has
/// the environment it was started with. Blocks: it reads `/proc`.
pub(super) fn end(group: Option<Pid>, sandbox: Option<&str>) {
    if let Some(group) = group {
        // ESRCH: it ended just now.
        let _ = kill_process_group(group, Signal::KILL);
    }
    if let Some(sandbox) = sandbox {
        end_all_of(sandbox);
    }
}

/// Every process that was started by a plugin for this sandbox, also by a daemon before this one. Looks again until there
/// is none that was not seen: a process may fork while it is looked for.
pub(crate) fn end_all_of(sandbox: &str) {
    let entry = format!("CNI_CONTAINERID={sandbox}");
    let own = std::process::id();
    let mut killed = HashSet::new();
    loop {
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let found: Vec<u32> = pids.filter(|pid| *pid != own && !killed.contains(pid) && has(*pid, &entry)).collect();
        if found.is_empty() {
            return;
        }
        for pid in found {
            kill(pid, &entry);
            killed.insert(pid);
        }
    }
}

fn has(pid: u32, entry: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|one| one == entry.as_bytes())
}

fn kill(pid: u32, entry: &str) {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    let Ok(pidfd) = pidfd_open(raw, PidfdFlags::empty()) else { return };
    // Asked again when the descriptor is open: the number may be another process's by now.
    if has(pid, entry) {
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
}
