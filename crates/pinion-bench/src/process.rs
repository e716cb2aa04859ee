use std::{collections::BTreeMap, fs, time::Duration};

use rustix::process::Pid;
use syscall::process_stat::ProcessStat;

use crate::engine::Failure;

/// The processes of the machine and their resource usage, by pid.
#[derive(Debug)]
pub(crate) struct Processes(BTreeMap<i32, Process>);

#[derive(Debug)]
struct Process {
    command: String,
    pss: u64,
}

impl Processes {
    /// Reads all processes except kernel threads and this one.
    pub(crate) fn now() -> Self {
        let own = std::process::id() as i32;
        let pids = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
        Self(pids.filter(|pid| *pid != own).filter_map(|pid| Some((pid, read(pid)?))).collect())
    }

    /// Returns the number of new processes since an earlier reading, and the change of the PSS of all processes in
    /// bytes. Ignores processes of the pods, whose command line is `user`, and processes that exited in the meantime.
    pub(crate) fn since(&self, earlier: &Self, user: &str) -> (i64, i64) {
        let others = self.0.iter().filter(|(_, process)| process.command != user);
        others.fold((0i64, 0i64), |(count, pss), (pid, process)| match earlier.0.get(pid) {
            Some(before) => (count, pss + process.pss as i64 - before.pss as i64),
            None => (count + 1, pss + process.pss as i64),
        })
    }

    /// Removes the processes that do not exist in a later reading, and so were short-lived.
    pub(crate) fn retain_alive(mut self, later: &Self) -> Self {
        self.0.retain(|pid, _| later.0.contains_key(pid));
        self
    }

    /// Returns the PSS of a process and its descendants in bytes.
    pub(crate) fn pss_of_tree(&self, root: i32) -> u64 {
        self.0.iter().filter(|(pid, _)| descends(**pid, root)).map(|(_, process)| process.pss).sum()
    }
}

fn read(pid: i32) -> Option<Process> {
    let command = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).ok()?)
        .trim_end_matches('\0')
        .replace('\0', " ");
    if command.is_empty() {
        return None; // a kernel thread or a zombie
    }
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let pss =
        rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?.split_whitespace().next()?.parse::<u64>().ok()?
            * 1024;
    Some(Process { command, pss })
}

/// Returns the pids of all zombies.
pub(crate) fn zombies() -> std::collections::BTreeSet<i32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|stat| stat.is_zombie())).collect()
}

fn stat(pid: i32) -> Option<ProcessStat> {
    ProcessStat::read(Pid::from_raw(pid)?).ok()
}

fn descends(pid: i32, root: i32) -> bool {
    let mut ancestor = pid;
    while ancestor > 1 {
        if ancestor == root {
            return true;
        }
        let Some(stat) = stat(ancestor) else { return false };
        ancestor = stat.parent;
    }
    false
}

/// Returns the CPU time of a process and all its threads so far.
pub(crate) fn cpu_time(pid: i32) -> Result<Duration, Failure> {
    let stat = match Pid::from_raw(pid) {
        Some(pid) => ProcessStat::read(pid),
        None => Err(rustix::io::Errno::NOENT.into()),
    };
    let stat = stat.map_err(|e| Failure(format!("read /proc/{pid}/stat: {e}")))?;
    Ok(Duration::from_millis((stat.user_ticks + stat.system_ticks) * 1000 / rustix::param::clock_ticks_per_second()))
}
