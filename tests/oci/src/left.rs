use std::{fs, path::Path};

use rustix::{
    mount::{UnmountFlags, unmount},
    process::{Pid, Signal, kill_process},
};

use crate::{cgroup::roots_named, mountinfo::mounts_of, reaper};

/// Processes that carry a case's mark in their environment and have not ended.
fn marked(tag: &str) -> Vec<i32> {
    let mark = format!("PINION_OCI_CASE={tag}\0");
    let pids =
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|window| window == mark.as_bytes())
    })
    .collect()
}

/// What a case left on the machine: cgroups, processes, mounts, state.
pub(crate) fn behind(tag: &str, directory: &Path, state: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for group in roots_named(tag) {
        all.extend(group.directories().iter().map(|directory| format!("cgroup {}", directory.display())));
    }
    for pid in marked(tag) {
        let name = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
        all.push(format!("process {pid} {name}"));
    }
    let mounts = mounts_of(std::process::id() as i32);
    all.extend(mounts.iter().filter(|m| Path::new(&m.at).starts_with(directory)).map(|m| format!("mount {}", m.at)));
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        // A hidden file of the runtime's own, such as a lock, is no container.
        if !entry.file_name().to_string_lossy().starts_with('.') {
            all.push(format!("state {}", entry.path().display()));
        }
    }
    all
}

/// Removes whatever a case left.
pub(crate) fn clean(tag: &str, directory: &Path) {
    let mut pids = marked(tag);
    for group in roots_named(tag) {
        for freezer in group.below() {
            let _ = fs::write(freezer.join("freezer.state"), "THAWED");
            let _ = fs::write(freezer.join("cgroup.freeze"), "0");
        }
        pids.extend(group.processes());
    }
    for pid in pids.into_iter().filter_map(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
        let _ = reaper::wait(pid.as_raw_nonzero().get());
    }
    let mounts = mounts_of(std::process::id() as i32);
    for mount in mounts.iter().rev().filter(|mount| Path::new(&mount.at).starts_with(directory)) {
        let _ = unmount(&mount.at, UnmountFlags::DETACH);
    }
    for group in roots_named(tag) {
        for directory in group.below() {
            let _ = fs::remove_dir(directory);
        }
    }
}
