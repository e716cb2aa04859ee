use std::{collections::BTreeMap, fs};

/// Processes of the machine with what they use, by pid.
#[derive(Debug)]
pub(crate) struct Processes(BTreeMap<i32, Process>);

#[derive(Debug)]
struct Process {
    command: String,
    pss: u64,
}

impl Processes {
    /// Reads every process but kernel threads and this one.
    pub(crate) fn now() -> Self {
        let own = std::process::id() as i32;
        let pids = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
        Self(pids.filter(|pid| *pid != own).filter_map(|pid| Some((pid, read(pid)?))).collect())
    }

    /// How many there are more, and how many bytes of proportional memory more, than in an earlier reading; processes
    /// whose command line holds `user` are the users' own and are left out.
    pub(crate) fn since(&self, earlier: &Self, user: &str) -> (i64, i64) {
        let ours = |all: &Self| {
            let ours = all.0.values().filter(|process| !process.command.contains(user));
            ours.fold((0i64, 0i64), |(count, pss), process| (count + 1, pss + process.pss as i64))
        };
        let (now, then) = (ours(self), ours(earlier));
        (now.0 - then.0, now.1 - then.1)
    }

    /// Proportional memory of one process and all below it, bytes.
    pub(crate) fn pss_below(&self, root: i32) -> u64 {
        self.0.iter().filter(|(pid, _)| descends(**pid, root)).map(|(_, process)| process.pss).sum()
    }
}

fn read(pid: i32) -> Option<Process> {
    let command = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).ok()?).replace('\0', " ");
    if command.is_empty() {
        return None; // a kernel thread or a zombie
    }
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let pss =
        rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?.split_whitespace().next()?.parse::<u64>().ok()?
            * 1024;
    Some(Process { command, pss })
}

fn descends(pid: i32, root: i32) -> bool {
    let mut at = pid;
    while at > 1 {
        if at == root {
            return true;
        }
        let Ok(stat) = fs::read_to_string(format!("/proc/{at}/stat")) else { return false };
        let Some(parent) = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse().ok()) else {
            return false;
        };
        at = parent;
    }
    false
}
