//! Freezes and kills containers of the benchmark.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::engine::Failure;

/// A guard that thaws a cgroup when it is dropped.
pub(super) struct FreezeGuard {
    file: PathBuf,
    thawed: &'static str,
}

impl Drop for FreezeGuard {
    fn drop(&mut self) {
        // The container may have been removed in the meantime.
        let _ = fs::write(&self.file, self.thawed);
    }
}

/// Freezes the cgroup of the process with this mark in its command line.
pub(super) fn freeze(mark: &str) -> Result<FreezeGuard, Failure> {
    let pid = find(mark)?;
    let (file, frozen, thawed) = freezer(pid)?;
    fs::write(&file, frozen).map_err(|e| Failure(format!("write {frozen} to {}: {e}", file.display())))?;
    Ok(FreezeGuard { file, thawed })
}

/// Kills the process with this mark in its command line.
pub(super) fn kill(mark: &str) -> Result<(), Failure> {
    let pid = find(mark)?;
    let pid = Pid::from_raw(pid).ok_or_else(|| Failure(format!("{pid} is not a process id")))?;
    kill_process(pid, Signal::KILL).map_err(|e| Failure(format!("kill process {pid:?}: {e}")))
}

fn find(mark: &str) -> Result<i32, Failure> {
    let command_line = format!("sleep\0{mark}\0");
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let process = pids
        .find(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(command_line.as_bytes())));
    process.ok_or_else(|| Failure(format!("find process `sleep {mark}`: it does not exist")))
}

/// Returns the file that freezes the cgroup of a process, which must not be the root, and the values that freeze and
/// thaw.
fn freezer(pid: i32) -> Result<(PathBuf, &'static str, &'static str), Failure> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))
        .map_err(|e| Failure(format!("read the cgroups of process {pid}: {e}")))?;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(hierarchy), Some(path)) = (fields.next(), fields.next()) else { continue };
        let relative = path.trim_start_matches('/');
        let (roots, file, frozen, thawed): (&[&str], _, _, _) = match hierarchy {
            "" => (&["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], "cgroup.freeze", "1", "0"),
            "freezer" => (&["/sys/fs/cgroup/freezer"], "freezer.state", "FROZEN", "THAWED"),
            _ => continue,
        };
        let files = roots.iter().map(|root| Path::new(root).join(relative).join(file));
        if let Some(file) = files.filter(|_| !relative.is_empty()).find(|file| file.exists()) {
            return Ok((file, frozen, thawed));
        }
    }
    Err(Failure(format!("freeze process {pid}: it is not in a cgroup that can be frozen")))
}
