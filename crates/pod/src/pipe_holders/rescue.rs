//! The end of a daemon that was killed and cannot end by itself.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use super::{Holder, Thread, holders, owner, pipes_of, threads};
use crate::process;

/// A worker of io_uring(7) that waits so long in one place of the kernel is taken for a holder: what it does is not visible.
const WORKER: Duration = Duration::from_secs(2);
/// Ends what keeps a daemon from its end, in rounds.
pub struct Rescue {
    state_dir: PathBuf,
    daemon: Pid,
    /// Workers that wait, and since when they were seen to.
    workers: HashMap<Holder, Instant>,
}

impl Rescue {
    /// `None` where this process does not end: only one that was killed, or exits, is helped.
    pub fn of(state_dir: &Path, daemon: Pid) -> Option<Self> {
        is_ending(daemon).then(|| Self { state_dir: state_dir.to_owned(), daemon, workers: HashMap::new() })
    }

    /// Looks once, kills with SIGKILL the processes of containers that keep pipes of the daemon locked, and returns them. Requires
    /// `CAP_SYS_PTRACE` and `CAP_KILL`; does nothing without. Takes some 50 µs for each process of the machine.
    pub fn round(&mut self) -> Vec<Holder> {
        let threads = threads(&self.state_dir, &pipes_of(&self.state_dir, self.daemon));
        let workers = self.blocked_workers(&threads);
        let mut ended: Vec<Holder> = holders(&threads).cloned().chain(workers).collect();
        ended.retain(|holder| kill(holder).is_ok());
        ended
    }

    fn blocked_workers(&mut self, threads: &[Thread]) -> Vec<Holder> {
        let now = Instant::now();
        let waiting = threads.iter().filter(|thread| thread.is_worker && thread.touches);
        let waiting: HashMap<Holder, Instant> =
            waiting.map(|thread| (thread.holder.clone(), *self.workers.get(&thread.holder).unwrap_or(&now))).collect();
        self.workers = waiting;
        self.workers.iter().filter(|(_, since)| since.elapsed() >= WORKER).map(|(holder, _)| holder.clone()).collect()
    }
}

fn kill(holder: &Holder) -> Result<(), Errno> {
    let pidfd = pidfd_open(holder.pid, PidfdFlags::empty())?;
    // Its number may belong to another process since it was seen.
    let process = PathBuf::from(format!("/proc/{}", holder.pid));
    owner(&process, &HashSet::from([holder.owner.clone()])).ok_or(Errno::SRCH)?;
    pidfd_send_signal(pidfd, Signal::KILL)
}

/// Whether a process runs none of its program again. One that is gone is none.
fn is_ending(process: Pid) -> bool {
    let pid = process.as_raw_nonzero().get().unsigned_abs();
    process::start_time(pid).is_some() && (process::is_ending(pid) || process::is_killed(pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_is_ending_and_one_that_runs_is_not() {
        assert!(!is_ending(rustix::process::getpid()));
        let mut child = std::process::Command::new("true").spawn().expect("spawn");
        let pid = Pid::from_child(&child);
        let begin = Instant::now();
        while !is_ending(pid) {
            assert!(begin.elapsed().as_secs() < 10, "it ends");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.wait().expect("wait");
        assert!(!is_ending(pid), "nothing is known of what is gone");
    }

    #[test]
    fn a_process_that_runs_is_not_helped() {
        assert!(Rescue::of(Path::new("/nothing"), rustix::process::getpid()).is_none());
    }
}
