//! Rescue of a daemon that was killed and cannot complete its exit.

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

/// How long a thread that certainly is in a call on a pipe of the daemon must wait there to be taken for a holder.
const CERTAIN: Duration = Duration::from_millis(500);
/// How long a thread that possibly works on a pipe must wait in its call.
const HIDDEN: Duration = Duration::from_secs(2);
/// After this time possible holders are killed, too: the daemon has not exited although all certain holders were
/// killed.
const ESCALATION: Duration = Duration::from_secs(5);

/// Kills the processes that keep a killed daemon from exiting, in rounds. A process is killed if it is seen in one call
/// on a pipe of the daemon for half a second. If the daemon still waits for a pipe after 5 s, processes are also killed
/// that are in one call that moves data, or in one operation of io_uring(7), for 2 s, no matter which files it uses: a
/// process may close a descriptor that its call uses.
pub struct Rescue {
    state_dir: PathBuf,
    daemon: Pid,
    start_time: u64,
    begin: Instant,
    /// Threads that wait, and when they were first seen.
    waiting: HashMap<Holder, Instant>,
    killed: HashSet<Holder>,
}

impl Rescue {
    /// Returns a rescue of this process; `None` if it is not exiting: only a process that was killed, or exits, is
    /// rescued.
    pub fn new(state_dir: &Path, daemon: Pid) -> Option<Self> {
        let (state_dir, start_time) = (state_dir.to_owned(), process::start_time(number(daemon))?);
        let (begin, waiting, killed) = (Instant::now(), HashMap::new(), HashSet::new());
        let rescue = Self { state_dir, daemon, start_time, begin, waiting, killed };
        rescue.is_needed().then_some(rescue)
    }

    /// Returns the pid of the daemon.
    pub fn daemon(&self) -> Pid {
        self.daemon
    }

    /// Reports whether the daemon still exists and is exiting.
    pub fn is_needed(&self) -> bool {
        let pid = number(self.daemon);
        process::start_time(pid) == Some(self.start_time) && (process::is_ending(pid) || process::is_killed(pid))
    }

    /// Inspects the containers once, and returns the processes that it killed. Requires `CAP_SYS_PTRACE` and
    /// `CAP_KILL`; does nothing without them.
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
            // A killed process may not exit yet, because it waits for another one; it is returned only once.
            if is_holder && self.kill(&holder).is_ok() && self.killed.insert(holder.clone()) {
                killed.push(holder.clone());
            }
            waiting.insert(holder, since);
        }
        self.waiting = waiting;
        killed
    }

    /// Reports whether the daemon waits for a pipe, and not, for example, for a disk.
    fn waits_for_a_pipe(&self) -> bool {
        let threads = entries(Path::new(&format!("/proc/{}/task", self.daemon)));
        threads.iter().any(|thread| {
            fs::read_to_string(thread.path().join("wchan")).is_ok_and(|function| function.contains("pipe"))
        })
    }

    fn kill(&self, holder: &Holder) -> Result<(), Errno> {
        let pidfd = pidfd_open(holder.pid, PidfdFlags::empty())?;
        // The pid may have been reused since, and the daemon may have exited.
        let owner = Ids::read(&self.state_dir).owner(holder.pid);
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
        Rescue::new(Path::new("/nothing"), pid)
    }

    #[test]
    fn a_process_that_exited_is_rescued_until_it_is_reaped_and_a_running_one_is_not() {
        assert!(rescue(rustix::process::getpid()).is_none());
        let mut child = std::process::Command::new("true").spawn().expect("spawn");
        let pid = Pid::from_child(&child);
        let begin = Instant::now();
        let mut started = rescue(pid);
        while started.is_none() {
            assert!(begin.elapsed().as_secs() < 10, "the child exits");
            std::thread::sleep(Duration::from_millis(1));
            started = rescue(pid);
        }
        assert!(started.as_ref().is_some_and(Rescue::is_needed));
        child.wait().expect("wait");
        assert!(!started.expect("a rescue").is_needed(), "the process was reaped");
        assert!(rescue(pid).is_none());
    }
}
