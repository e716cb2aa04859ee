//! What `/proc` and wait(2) tell of a process.

use std::fs;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::AsFd,
    io::Errno,
    process::{WaitId, WaitIdOptions, WaitIdStatus, WaitStatus, waitid},
};
use syscall::pidfd_exit::{PidfdExit, pidfd_exit};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// Exit code, 128 + signal for a killed one; `None`: it cannot be known.
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
}

impl End {
    /// Nobody can tell any more.
    pub(crate) const UNKNOWN: Self = Self { code: None, signal: None };

    fn exited(code: i32) -> Self {
        Self { code: Some(code), signal: None }
    }

    fn killed(signal: i32) -> Self {
        Self { code: Some(128 + signal), signal: Some(signal) }
    }

    /// Of waitpid(2).
    pub(crate) fn of(status: WaitStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::exited(code),
            (_, Some(signal)) => Self::killed(signal),
            _ => Self::UNKNOWN,
        }
    }

    fn of_waitid(status: &WaitIdStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::exited(code),
            (_, Some(signal)) => Self::killed(signal),
            _ => Self::UNKNOWN,
        }
    }

    /// Of a raw wait status.
    fn of_raw(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::exited((status >> 8) & 0xff),
            signal => Self::killed(signal),
        }
    }
}

/// What is known of a process whose pidfd says it ended.
pub(crate) enum Known {
    End(End),
    /// Its parent has not reaped it: ask again.
    NotYet,
    /// The kernel cannot tell (before Linux 6.15).
    Never,
    /// It lives.
    Alive,
}

/// Whether it has not ended, reaped or not.
pub(crate) fn is_alive(pidfd: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1))
}

/// Whether it has begun to end: the first process of a PID namespace ends all others there before it is a zombie.
pub(crate) fn is_ending(pid: i32) -> bool {
    const PF_EXITING: u64 = 0x4;
    stat_field(pid, 9).and_then(|flags| flags.parse::<u64>().ok()).is_none_or(|flags| flags & PF_EXITING != 0)
}

/// How a process ended: as its parent (which reaps it), as anybody once it was reaped, or from the zombie that it is
/// until then.
pub(crate) fn end_of(pidfd: impl AsFd, pid: i32, started: u64) -> Known {
    if is_alive(&pidfd) {
        return Known::Alive;
    }
    match waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
        Ok(Some(status)) => return Known::End(End::of_waitid(&status)),
        Ok(None) => return Known::NotYet,
        Err(Errno::CHILD) => {}
        Err(_) => return Known::Never,
    }
    match pidfd_exit(&pidfd) {
        Ok(PidfdExit::Reaped(status)) => Known::End(End::of_raw(status)),
        Ok(PidfdExit::NotReaped) => zombie_end(pid, started).map_or(Known::NotYet, Known::End),
        Ok(PidfdExit::Unknown) | Err(_) => zombie_end(pid, started).map_or(Known::Never, Known::End),
    }
}

/// Whether it waits in the kernel for what no signal ends.
pub(crate) fn is_uninterruptible(pid: i32) -> bool {
    stat_field(pid, 3).is_some_and(|state| state == "D")
}

/// Clock ticks since boot when the process started: with its pid, its identity.
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    stat_field(pid, 22)?.parse().ok()
}

/// How the zombie of this pid and start time ended.
fn zombie_end(pid: i32, started: u64) -> Option<End> {
    // All from one read: the number may be another's at the next.
    let stat = stat_of(pid)?;
    let its_own = field(&stat, 22)?.parse() == Ok(started);
    (field(&stat, 3)? == "Z" && its_own).then(|| field(&stat, 52))??.parse().ok().map(End::of_raw)
}

fn stat_of(pid: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

fn stat_field(pid: i32, number: usize) -> Option<String> {
    field(&stat_of(pid)?, number).map(str::to_owned)
}

/// Of `/proc/<pid>/stat`, counted from one.
fn field(stat: &str, number: usize) -> Option<&str> {
    // The second field is the name in parentheses and may hold anything.
    let rest = stat.get(stat.rfind(')')? + 2..)?;
    rest.split(' ').nth(number.checked_sub(3)?).map(str::trim_end)
}

/// `/proc/<pid>/oom_score_adj`.
pub(crate) fn oom_score_adj(pid: i32) -> Option<i32> {
    fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok()?.trim().parse().ok()
}

/// Whether a seccomp filter is loaded in it.
pub(crate) fn has_seccomp(pid: i32) -> Option<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?;
    Some(mode.trim() != "0")
}

/// Whether it is in another user namespace than this process, for containers that were made before this was on record:
/// the container chooses it. One that is gone is in none.
pub(crate) fn in_user_namespace(pid: u32) -> bool {
    let namespace = |whose: &str| rustix::fs::stat(format!("/proc/{whose}/ns/user")).map(|stat| stat.st_ino);
    matches!((namespace(&pid.to_string()), namespace("self")), (Ok(theirs), Ok(own)) if theirs != own)
}
