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
        let open_fds = fs::read_dir(directory.join("fd")).map_or(0, |entries| entries.count() as u64);
        Some(Self {
            cpu_seconds: (stat.user_ticks + stat.system_ticks) as f64 / ticks,
            resident_bytes: stat.resident_pages * rustix::param::page_size() as u64,
            virtual_bytes: stat.virtual_bytes,
            threads: stat.threads,
            open_fds,
            started: stat.start_time as f64 / ticks + boot_time().unwrap_or(0.0),
        })
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
    fn this_process_can_be_read() {
        let process = Process::read(std::process::id()).expect("alive");
        assert!(process.resident_bytes > 0 && process.open_fds > 2 && process.threads > 0);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        assert!((process.started - now.as_secs_f64()).abs() < 3600.0);
    }
}
