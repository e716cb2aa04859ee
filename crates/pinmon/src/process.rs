//! Information about processes from `/proc` and wait(2).

use std::fs;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::AsFd,
    io::Errno,
    process::{Pid, WaitId, WaitIdOptions, WaitIdStatus, WaitStatus, waitid},
};
use syscall::{
    pidfd_exit::{PidfdExit, pidfd_exit},
    process_stat::ProcessStat,
};

/// Exit status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessExit {
    /// Exit code, 128 + signal for a killed process; `None` if it is unknown.
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
}

impl ProcessExit {
    /// The status cannot be determined any longer.
    pub(crate) const UNKNOWN: Self = Self { code: None, signal: None };

    fn exited(code: i32) -> Self {
        Self { code: Some(code), signal: None }
    }

    fn killed(signal: i32) -> Self {
        Self { code: Some(128 + signal), signal: Some(signal) }
    }

    /// Converts a status of waitpid(2).
    pub(crate) fn of(status: WaitStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::exited(code),
            (_, Some(signal)) => Self::killed(signal),
            _ => Self::UNKNOWN,
        }
    }

    fn from_waitid(status: &WaitIdStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::exited(code),
            (_, Some(signal)) => Self::killed(signal),
            _ => Self::UNKNOWN,
        }
    }

    /// Converts a raw wait status.
    fn from_raw(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::exited((status >> 8) & 0xff),
            signal => Self::killed(signal),
        }
    }
}

/// Exit status of a process according to its pidfd.
pub(crate) enum ExitLookup {
    Exited(ProcessExit),
    /// Its parent has not reaped it; retry.
    NotReaped,
    /// The kernel cannot report it (before Linux 6.15).
    Unknown,
    /// The process is running.
    Alive,
}

/// Whether a process is running, and neither a zombie nor reaped.
pub(crate) fn is_alive(pidfd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
}

/// Whether a process is exiting. The init of a PID namespace kills all other processes of it before it becomes a
/// zombie.
pub(crate) fn is_ending(pid: i32) -> bool {
    stat(pid).is_none_or(|stat| stat.is_exiting())
}

/// Looks up how a process exited: by reaping it if this process is its parent, by its pidfd if it was reaped, or from
/// its zombie.
pub(crate) fn look_up_exit(pidfd: impl AsFd, pid: i32, started: u64) -> ExitLookup {
    if is_alive(&pidfd) {
        return ExitLookup::Alive;
    }
    match waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
        Ok(Some(status)) => return ExitLookup::Exited(ProcessExit::from_waitid(&status)),
        Ok(None) => return ExitLookup::NotReaped,
        Err(Errno::CHILD) => {}
        Err(_) => return ExitLookup::Unknown,
    }
    match pidfd_exit(&pidfd) {
        Ok(PidfdExit::Reaped(status)) => ExitLookup::Exited(ProcessExit::from_raw(status)),
        Ok(PidfdExit::NotReaped) => zombie_exit(pid, started).map_or(ExitLookup::NotReaped, ExitLookup::Exited),
        Ok(PidfdExit::Unknown) | Err(_) => zombie_exit(pid, started).map_or(ExitLookup::Unknown, ExitLookup::Exited),
    }
}

/// Whether a process is in uninterruptible sleep (state D).
pub(crate) fn is_uninterruptible(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| stat.is_uninterruptible())
}

/// Returns the start time of a process in clock ticks since boot. Pid and start time identify it.
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    Some(stat(pid)?.start_time)
}

/// Returns the exit status of the zombie with this pid and start time.
fn zombie_exit(pid: i32, started: u64) -> Option<ProcessExit> {
    // Read once: with a second read, the pid may belong to another process.
    let stat = stat(pid)?;
    (stat.is_zombie() && stat.start_time == started).then_some(stat.exit_status)?.map(ProcessExit::from_raw)
}

fn stat(pid: i32) -> Option<ProcessStat> {
    ProcessStat::read(Pid::from_raw(pid)?).ok()
}

/// Reads `/proc/<pid>/oom_score_adj`.
pub(crate) fn oom_score_adj(pid: i32) -> Option<i32> {
    fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok()?.trim().parse().ok()
}

/// Whether a seccomp filter is active in a process.
pub(crate) fn has_seccomp(pid: i32) -> Option<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?;
    Some(mode.trim() != "0")
}

/// Whether a process is in another user namespace than this one. Only for containers created by versions that did not
/// record it: the container controls it. Returns `false` for a process that exited.
pub(crate) fn in_user_namespace(pid: u32) -> bool {
    let namespace = |whose: &str| rustix::fs::stat(format!("/proc/{whose}/ns/user")).map(|stat| stat.st_ino);
    matches!((namespace(&pid.to_string()), namespace("self")), (Ok(theirs), Ok(ours)) if theirs != ours)
}
