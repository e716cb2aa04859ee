use std::{fs, path::Path};

use rustix::{
    mount::{UnmountFlags, unmount},
    process::{Pid, Signal, kill_process},
};

use crate::{cgroup::top_level_with_prefix, mountinfo::mounts_of, reaper};

/// Lists the running processes that have the tag of a case in their environment.
fn marked_processes(tag: &str) -> Vec<i32> {
    let variable = format!("PINION_OCI_CASE={tag}\0");
    let pids =
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(variable.len()).any(|window| window == variable.as_bytes())
    })
    .collect()
}

/// Lists what a case leaked on the machine: cgroups, processes, mounts and state.
pub(crate) fn find(tag: &str, directory: &Path, state: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for group in top_level_with_prefix(tag) {
        all.extend(group.directories().iter().map(|directory| format!("cgroup {}", directory.display())));
    }
    for pid in marked_processes(tag) {
        let name = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ");
        all.push(format!("process {pid} {name}"));
    }
    let mounts = mounts_of(std::process::id() as i32);
    all.extend(
        mounts
            .iter()
            .filter(|m| Path::new(&m.mount_point).starts_with(directory))
            .map(|m| format!("mount {}", m.mount_point)),
    );
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        // Hidden files of the runtime, such as locks, are not containers.
        if !entry.file_name().to_string_lossy().starts_with('.') {
            all.push(format!("state {}", entry.path().display()));
        }
    }
    all
}

/// Removes everything that a case leaked.
pub(crate) fn remove(tag: &str, directory: &Path) {
    let mut pids = marked_processes(tag);
    for group in top_level_with_prefix(tag) {
        for freezer in group.subtree() {
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
    for mount in mounts.iter().rev().filter(|mount| Path::new(&mount.mount_point).starts_with(directory)) {
        let _ = unmount(&mount.mount_point, UnmountFlags::DETACH);
    }
    for group in top_level_with_prefix(tag) {
        for directory in group.subtree() {
            let _ = fs::remove_dir(directory);
        }
    }
}
