use std::fs;

use serde::{Deserialize, Serialize};

/// A description of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    kernel: String,
    cpu: String,
    cores: usize,
    memory_mib: u64,
    cgroups: String,
}

impl Machine {
    /// Reads the description from /proc and /sys.
    pub(crate) fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let memory = after(&read("/proc/meminfo"), "MemTotal");
        let unified = fs::exists("/sys/fs/cgroup/cgroup.controllers").unwrap_or(false);
        let hybrid = fs::exists("/sys/fs/cgroup/unified/cgroup.procs").unwrap_or(false);
        Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: after(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024,
            cgroups: match (unified, hybrid) {
                (true, _) => "v2",
                (false, true) => "hybrid",
                (false, false) => "v1",
            }
            .to_owned(),
        }
    }

    /// Returns a one-line summary.
    pub(crate) fn line(&self) -> String {
        format!(
            "{} cores ({}), {} MiB, Linux {}, cgroup {}",
            self.cores, self.cpu, self.memory_mib, self.kernel, self.cgroups
        )
    }
}

/// Monotonic counters of the whole machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Processes and threads created since boot.
    pub(crate) forks: u64,
    /// Non-idle CPU time of all cores in milliseconds.
    pub(crate) busy_ms: u64,
    /// Bytes written to block devices.
    pub(crate) written: u64,
}

impl Counters {
    /// Reads the counters after sync(2), so that dirty data is included.
    pub(crate) fn after_sync() -> Self {
        rustix::fs::sync();
        Self::now()
    }

    /// Reads the counters.
    pub(crate) fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let forks = stat.lines().find_map(|line| line.strip_prefix("processes ")?.trim().parse().ok()).unwrap_or(0);
        let ticks: Vec<u64> =
            stat.lines().next().unwrap_or_default().split_whitespace().skip(1).filter_map(|t| t.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal …: idle and iowait are not busy, user already includes guest
        // time.
        let busy: u64 = ticks.iter().take(8).enumerate().filter(|(i, _)| *i != 3 && *i != 4).map(|(_, t)| t).sum();
        Self { forks, busy_ms: busy * 1000 / rustix::param::clock_ticks_per_second(), written: written() }
    }

    /// Returns the differences to an earlier reading.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            forks: self.forks - earlier.forks,
            busy_ms: self.busy_ms.saturating_sub(earlier.busy_ms),
            written: self.written.saturating_sub(earlier.written),
        }
    }
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.forks += other.forks;
        self.busy_ms += other.busy_ms;
        self.written += other.written;
    }
}

/// Returns the bytes written to whole disks (field 10 of /proc/diskstats, sectors of 512 bytes), without loop and RAM
/// devices.
fn written() -> u64 {
    let text = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let fields = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields
        .filter(|f| f.len() > 9 && fs::exists(format!("/sys/block/{}", f[2])).unwrap_or(false))
        .filter(|f| !["loop", "ram", "zram"].iter().any(|kind| f[2].starts_with(kind)))
        .filter_map(|f| f[9].parse::<u64>().ok())
        .sum::<u64>()
        * 512
}
