//! Measurements of a process, read from `/proc` (proc(5)).

use std::{fs, path::PathBuf};

use rustix::process::Pid;
use syscall::process_stat::ProcessStat;

/// A snapshot of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    /// User and system time.
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: u64,
    pub(super) virtual_bytes: u64,
    pub(super) threads: u64,
    pub(super) open_fds: u64,
    /// Seconds since the epoch.
    pub(super) started: f64,
}

impl Process {
    /// Reads the measurements of a process. Returns `None` if it does not exist.
    pub(super) fn read(pid: u32) -> Option<Self> {
        let directory = PathBuf::from(format!("/proc/{pid}"));
        let stat = ProcessStat::read(i32::try_from(pid).ok().and_then(Pid::from_raw)?).ok()?;
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let mut process = Self::from_stat(&stat, ticks, rustix::param::page_size() as u64);
        process.open_fds = fs::read_dir(directory.join("fd")).map_or(0, |entries| entries.count() as u64);
        process.started += boot_time().unwrap_or(0.0);
        Some(process)
    }

    /// Converts clock ticks and pages. `started` is in seconds since boot.
    fn from_stat(stat: &ProcessStat, ticks: f64, page: u64) -> Self {
        Self {
            cpu_seconds: (stat.user_ticks + stat.system_ticks) as f64 / ticks,
            resident_bytes: stat.resident_pages * page,
            virtual_bytes: stat.virtual_bytes,
            threads: stat.threads,
            open_fds: 0,
            started: stat.start_time as f64 / ticks,
        }
    }
}

/// Returns the boot time in seconds since the epoch.
fn boot_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_pages_are_converted() {
        let stat = b"12 (a) b (c 9 9) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 7 0 3000 8192 3 18446744073709551615";
        let process = Process::from_stat(&ProcessStat::parse(stat).expect("whole"), 100.0, 4096);
        assert_eq!((process.cpu_seconds, process.threads, process.started), (2.0, 7, 30.0));
        assert_eq!((process.virtual_bytes, process.resident_bytes), (8192, 12288));
    }

    #[test]
    fn this_process_can_be_read() {
        let process = Process::read(std::process::id()).expect("alive");
        assert!(process.resident_bytes > 0 && process.open_fds > 2 && process.threads > 0);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        assert!((process.started - now.as_secs_f64()).abs() < 3600.0);
    }
}
