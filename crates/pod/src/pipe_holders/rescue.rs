//! The end of a daemon that was killed and cannot end by itself.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use super::{
    Holder, entries,
    examine::{Doubt, Finding, Ids, examine},
    pipes_of,
};
use crate::process;

/// A thread that is in one call on a pipe of the daemon for so long, and waits for something else, keeps it locked.
const CERTAIN: Duration = Duration::from_millis(500);
/// A thread whose call moves data is in it for so long.
const HIDDEN: Duration = Duration::from_secs(2);
/// Only then what is hidden is taken for a holder: the daemon does not end although every visible holder was killed.
const ESCALATION: Duration = Duration::from_secs(5);

/// Ends what keeps a daemon from its end, in rounds. Processes are killed that are seen in one call on a pipe of the
/// daemon for half a second; if the daemon still waits for a pipe 5 s later, also those that are in one call that moves
/// data, or in one operation of io_uring(7), for 2 s, whatever files it is about: a process may close a descriptor that
/// its call uses.
pub struct Rescue {
    state_dir: PathBuf,
    daemon: Pid,
    start_time: u64,
    begin: Instant,
    /// Threads that wait, and since when they were seen to.
    waiting: HashMap<Holder, Instant>,
    killed: HashSet<Holder>,
}

impl Rescue {
    /// `None` where this process does not end: only one that was killed, or exits, is rescued.
    pub fn of(state_dir: &Path, daemon: Pid) -> Option<Self> {
        let (state_dir, start_time) = (state_dir.to_owned(), process::start_time(number(daemon))?);
        let (begin, waiting, killed) = (Instant::now(), HashMap::new(), HashSet::new());
        let rescue = Self { state_dir, daemon, start_time, begin, waiting, killed };
        rescue.is_needed().then_some(rescue)
    }

    /// The daemon.
    pub fn daemon(&self) -> Pid {
        self.daemon
    }

    /// Whether that daemon is there, and runs none of its program again.
    pub fn is_needed(&self) -> bool {
        let pid = number(self.daemon);
        process::start_time(pid) == Some(self.start_time) && (process::is_ending(pid) || process::is_killed(pid))
    }

    /// Looks once, and returns the processes of containers that it killed. Requires `CAP_SYS_PTRACE` and `CAP_KILL`;
    /// does nothing without.
    pub fn round(&mut self) -> Vec<Holder> {
        let findings = examine(&self.state_dir, &pipes_of(&self.state_dir, self.daemon));
        let escalated = self.begin.elapsed() >= ESCALATION && self.waits_for_a_pipe();
        let (mut waiting, mut killed) = (HashMap::new(), Vec::new());
        for Finding { holder, doubt } in findings {
            let since = self.waiting.get(&holder).copied().unwrap_or_else(Instant::now);
            let is_holder = match doubt {
                Doubt::None => since.elapsed() >= CERTAIN,
                Doubt::Hidden => escalated && since.elapsed() >= HIDDEN,
            };
            // One that cannot end yet, as it waits for another, is returned once.
            if is_holder && self.kill(&holder).is_ok() && self.killed.insert(holder.clone()) {
                killed.push(holder.clone());
            }
            waiting.insert(holder, since);
        }
        self.waiting = waiting;
        killed
    }

    /// Whether the daemon is kept from its end by a pipe, and not, for example, by a disk.
    fn waits_for_a_pipe(&self) -> bool {
        let threads = entries(Path::new(&format!("/proc/{}/task", self.daemon)));
        threads.iter().any(|thread| {
            fs::read_to_string(thread.path().join("wchan")).is_ok_and(|function| function.contains("pipe"))
        })
    }

    fn kill(&self, holder: &Holder) -> Result<(), Errno> {
        let pidfd = pidfd_open(holder.pid, PidfdFlags::empty())?;
        // Its number may belong to another process since it was seen, and the daemon may have ended.
        let owner = Ids::of(&self.state_dir).owner(holder.pid);
        if owner.as_ref() != Some(&holder.owner) || !self.is_needed() {
            return Err(Errno::SRCH);
        }
        pidfd_send_signal(pidfd, Signal::KILL)
    }
}

fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rescue(pid: Pid) -> Option<Rescue> {
        Rescue::of(Path::new("/nothing"), pid)
    }

    #[test]
    fn a_process_that_ended_is_rescued_until_it_is_gone_and_one_that_runs_is_not() {
        assert!(rescue(rustix::process::getpid()).is_none());
        let mut child = std::process::Command::new("true").spawn().expect("spawn");
        let pid = Pid::from_child(&child);
        let begin = Instant::now();
        let mut begun = rescue(pid);
        while begun.is_none() {
            assert!(begin.elapsed().as_secs() < 10, "it ends");
            std::thread::sleep(Duration::from_millis(1));
            begun = rescue(pid);
        }
        assert!(begun.as_ref().is_some_and(Rescue::is_needed));
        child.wait().expect("wait");
        assert!(!begun.expect("begun").is_needed(), "nothing is known of a process that is gone");
        assert!(rescue(pid).is_none());
    }
}
