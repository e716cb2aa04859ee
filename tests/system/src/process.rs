use std::fs;

/// A process of a node, with pids as the test's own PID namespace sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Pid in the test's namespace.
    pub pid: i32,
    /// Pid in the node's namespace, or in a container's below it: the innermost.
    pub inner: i32,
    /// Name (`comm`).
    pub name: String,
    /// `Z` for a zombie, as in proc(5).
    pub state: char,
}

impl Process {
    /// Reads one process; `None` if it is gone.
    pub fn read(pid: i32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Some(Self {
            pid,
            inner: field("NSpid:")?.split_whitespace().last()?.parse().ok()?,
            name: field("Name:")?.to_owned(),
            state: field("State:")?.chars().next()?,
        })
    }

    /// Proportional set size in KiB.
    pub fn pss_kib(&self) -> u64 {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid)).unwrap_or_default();
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }

    /// Every process in the PID namespace of `first` or below it, `first` left out.
    pub fn below(first: i32) -> Vec<Self> {
        let depth = |pid: i32| -> Option<Vec<String>> {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.to_owned();
            Some(line.split_whitespace().map(str::to_owned).collect())
        };
        let level = depth(first).map_or(2, |pids| pids.len());
        let pids = fs::read_dir("/proc")
            .expect("/proc is readable")
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| *pid != first && belongs(*pid, first) && depth(*pid).is_some_and(|pids| pids.len() >= level))
            .filter_map(Self::read)
            .collect()
    }
}

/// Whether `pid` lives in the PID namespace of `first` or in one below: its ancestry of namespaces is not shown by
/// /proc, its ancestry of parents is, and every orphan of a node falls to `first`.
fn belongs(pid: i32, first: i32) -> bool {
    let mut at = pid;
    for _ in 0..64 {
        if at == first {
            return true;
        }
        let Ok(stat) = fs::read_to_string(format!("/proc/{at}/stat")) else { return false };
        let Some(parent) = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse().ok()) else {
            return false;
        };
        if parent <= 1 {
            return false;
        }
        at = parent;
    }
    false
}
