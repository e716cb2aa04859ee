//! Processes that other programs may have started, identified by pid and start time, or by a pidfd. A pid alone is not
//! sufficient.

use std::{fs, io};

use readiness::watch;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, OwnedFd},
    io::Errno,
    process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid},
};
use syscall::{
    pidfd_exit::{PidfdExit, pidfd_exit},
    process_stat::ProcessStat,
};
use tokio::io::Interest;

use crate::{Error, error::failed};

/// Returns the start time of a process in clock ticks since boot (`/proc/<pid>/stat` field 22); `None` if the process
/// is gone or the file cannot be read.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    try_start_time(pid).ok().flatten()
}

/// Like [`start_time`], but `None` only if the process is gone.
pub(crate) fn try_start_time(pid: u32) -> io::Result<Option<u64>> {
    Ok(stat(pid)?.map(|stat| stat.start_time))
}

/// Converts the result of an access to a file of a process: `None` if the process is gone.
pub(crate) fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(cause) if is_gone(cause.raw_os_error()) => Ok(None),
        result => result.map(Some),
    }
}

/// Reports whether a process has executed a program since it was cloned: `PF_FORKNOEXEC` of `/proc/<pid>/stat` field 9.
/// `None` if the process is gone.
pub(crate) fn has_executed(pid: u32) -> io::Result<Option<bool>> {
    Ok(stat(pid)?.map(|stat| stat.has_executed()))
}

/// Returns device and inode of the program that a process executes; `None` if the process has exited.
pub(crate) fn program(pid: u32) -> io::Result<Option<(u64, u64)>> {
    let stat = unless_gone(rustix::fs::stat(format!("/proc/{pid}/exe")).map_err(io::Error::from))?;
    Ok(stat.map(|stat| (stat.st_dev, stat.st_ino)))
}

/// Reports whether a process has begun to exit: `PF_EXITING` of `/proc/<pid>/stat` field 9. The first process of a PID
/// namespace ends all others there before it becomes a zombie.
pub(crate) fn is_ending(pid: u32) -> bool {
    stat(pid).is_ok_and(|stat| stat.is_none_or(|stat| stat.is_exiting()))
}

/// Reports whether a process has a pending SIGKILL, such as one that is inside an uninterruptible call: `SigPnd` and
/// `ShdPnd` of `/proc/<pid>/status`.
pub(crate) fn is_killed(pid: u32) -> bool {
    const KILL: u64 = 1 << (9 - 1);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & KILL != 0))
    })
}

/// Reads `/proc/<pid>/stat`; `None` if the process is gone.
pub(crate) fn stat(pid: u32) -> io::Result<Option<ProcessStat>> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    unless_gone(ProcessStat::read(pid))
}

/// Reports whether the error of an access to a process means that the process is gone.
fn is_gone(errno: Option<i32>) -> bool {
    [Errno::NOENT, Errno::SRCH].iter().any(|gone| errno == Some(gone.raw_os_error()))
}

/// Returns a pidfd of the process with this pid and start time, if it exists and can be opened.
pub(crate) fn find(pid: u32, started: u64) -> Option<OwnedFd> {
    try_find(pid, started).ok().flatten()
}

/// Returns a pidfd of the process with this pid and start time; `None` if it is gone.
///
/// # Errors
/// Whether it exists is unknown: the kernel had no memory or descriptors.
pub(crate) fn try_find(pid: u32, started: u64) -> io::Result<Option<OwnedFd>> {
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    let pidfd = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
        Err(cause) => return Err(cause.into()),
    };
    // Checked after the pidfd was opened, so that both refer to the same process even if the pid is reused.
    Ok((try_start_time(pid)? == Some(started)).then_some(pidfd))
}

/// Reports whether the process has exited (it may still be a zombie). Does not block.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut files = [PollFd::new(pidfd, PollFlags::IN)];
    poll(&mut files, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Waits until the process has exited (it may still be a zombie).
pub(crate) async fn ended(pidfd: impl AsFd) -> Result<(), Error> {
    let pidfd = pidfd.as_fd().try_clone_to_owned().map_err(failed("duplicate a pidfd"))?;
    let pidfd = watch(pidfd, Interest::READABLE).map_err(failed("watch a pidfd"))?;
    let _ready = pidfd.readable().await.map_err(failed("watch a pidfd"))?;
    Ok(())
}

/// Reaps an exited child of this process, and returns its exit code or 128 + signal; `None` if it is not a child or has
/// not exited.
pub(crate) fn reap(pidfd: impl AsFd) -> Option<i32> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let status = waitid(WaitId::PidFd(pidfd.as_fd()), options).ok()??;
    status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal))
}

/// Returns the exit code of an exited process if the kernel still knows it: of a child, or with Linux 6.15 of any
/// process.
pub(crate) fn exit_code(pidfd: impl AsFd) -> Option<i32> {
    reap(&pidfd).or_else(|| match pidfd_exit(&pidfd) {
        Ok(PidfdExit::Reaped(status)) if status & 0x7f == 0 => Some((status >> 8) & 0xff),
        Ok(PidfdExit::Reaped(status)) => Some(128 + (status & 0x7f)),
        _ => None,
    })
}

/// Reports whether a signal sent now has an effect on the program: it has a handler, or blocks the signal and receives
/// it later. For the first process of a PID namespace the kernel drops a signal without either, as is the case for a
/// program that has just been started.
pub(crate) fn is_signal_effective(pid: u32, signal: i32) -> io::Result<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
    };
    let bit = 1u64 << (signal - 1).clamp(0, 63);
    let nested = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let first = nested.and_then(|pids| pids.split_ascii_whitespace().last()) == Some("1");
    Ok(!first || (mask("SigCgt:") | mask("SigBlk:")) & bit != 0)
}

/// Sets the OOM score adjustment of a process, -1000 to 1000.
pub(crate) fn set_oom_score_adj(pid: u32, score: i32) -> std::io::Result<()> {
    std::fs::write(format!("/proc/{pid}/oom_score_adj"), score.to_string())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_found_by_pid_and_start_time_only() {
        let me = std::process::id();
        let started = start_time(me).expect("this process");
        assert!(find(me, started).is_some());
        assert!(find(me, started + 1).is_none());
        assert!(find(0, started).is_none());
    }

    #[tokio::test]
    #[expect(clippy::zombie_processes, reason = "it is reaped through its pidfd")]
    async fn a_child_is_reaped_through_its_pidfd_with_its_exit_code() {
        let child = Command::new("/bin/sh").args(["-c", "exit 3"]).spawn().expect("spawn");
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("pidfd");
        ended(&pidfd).await.expect("exit");
        assert_eq!(reap(&pidfd), Some(3));
        assert_eq!(reap(&pidfd), None);
    }

    #[test]
    fn a_cloned_process_has_not_executed_a_program() {
        assert_eq!(has_executed(std::process::id()).expect("readable"), Some(true));
        let kernel_thread = 2;
        assert_ne!(has_executed(kernel_thread).expect("readable"), Some(true));
        assert_eq!(has_executed(u32::MAX).expect("readable"), None);
    }

    #[test]
    fn every_signal_is_effective_on_an_ordinary_process() {
        assert!(is_signal_effective(std::process::id(), 15).expect("this process"));
    }
}
