use rustix::{
    fd::OwnedFd,
    io::Errno,
    process::{Pid, PidfdFlags},
};
use syscall::pidfd_signal::pidfd_signal;

use crate::{Error, Group, controller::Controller};

/// SIGKILL.
const KILL: i32 = 9;
/// Passes over a group that forks faster than it can be listed.
const PASSES_MAX: usize = 64;
/// Processes whose pidfds are open at a time.
const AT_ONCE: usize = 256;

impl Group {
    /// SIGKILL to every process of the group and below, also to those being forked at this moment: `cgroup.kill`
    /// (kernel 5.14+), else by stopping the group first. What is frozen is thawed. Waits for nothing: neither for their
    /// end nor, where the group is stopped, for that; so without `cgroup.kill` one that forks just now may live on, and
    /// is hit by the next call. A group that is gone is fine.
    ///
    /// What is frozen in v1 freezer groups below it dies only after [`Group::thaw_below`].
    pub fn kill(&self) -> Result<(), Error> {
        if let Some(tree) = self.trees.v2() {
            let file = self.file(tree, "cgroup.kill");
            match tree.try_write(&file, "1") {
                Ok(()) | Err(Errno::NODEV) => return self.thaw_beside_v2(),
                Err(Errno::NOENT | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(tree.write_failed(&file, "1", errno)),
            }
        }
        if !self.primary()?.exists(self.path().relative()) {
            return Ok(());
        }
        self.kill_listed()
    }

    /// On a hybrid host somebody may have stopped it by the v1 freezer, and what that stopped dies only when it runs
    /// again. A command's group is not stopped there by itself.
    fn thaw_beside_v2(&self) -> Result<(), Error> {
        let freezer = self.trees.with(Controller::Freezer).filter(|tree| !tree.v2 && !self.is_exec_group());
        let Some(tree) = freezer else { return Ok(()) };
        let file = self.file(tree, "freezer.state");
        match tree.try_write(&file, "THAWED") {
            // Gone, or another user's.
            Ok(()) | Err(Errno::NODEV | Errno::NOENT | Errno::ACCESS | Errno::PERM) => Ok(()),
            Err(errno) => Err(tree.write_failed(&file, "THAWED", errno)),
        }
    }

    /// What stops forks no longer; what forked before is seen by the next pass. Lists until nobody new turns up.
    fn kill_listed(&self) -> Result<(), Error> {
        let stopping = self.begin_freeze().is_ok();
        let mut killed = Ok(());
        let mut known: Vec<i32> = Vec::new();
        for _ in 0..PASSES_MAX {
            killed = self.signal(KILL);
            let now = self.pids().unwrap_or_default();
            let fresh = now.iter().any(|pid| known.binary_search(pid).is_err());
            known = now;
            if !fresh || killed.is_err() {
                break;
            }
        }
        // v1 processes die when they run again.
        if stopping {
            self.thaw()?;
        }
        killed
    }

    /// A signal (1 to 64) to every process of the group and below. One that is forked meanwhile may miss it (use
    /// [`Group::kill`] for SIGKILL); one that ended meanwhile never hits another process that got its pid.
    pub fn signal(&self, signal: i32) -> Result<(), Error> {
        if !(1..=64).contains(&signal) {
            return Err(Error::invalid("signal", format!("{signal} is not from 1 to 64")));
        }
        let pids = self.pids()?;
        let mut outcome = Ok(());
        for some in pids.chunks(AT_ONCE) {
            let sent = self.signal_some(some, signal);
            outcome = outcome.and(sent);
        }
        outcome
    }

    /// To these; the first error, after all that could be reached have it.
    fn signal_some(&self, pids: &[i32], signal: i32) -> Result<(), Error> {
        let failed = |pid: i32| {
            let what = format!("send signal {signal} to process {pid} of");
            move |errno: Errno| Error::io(what.clone(), self.path().to_string(), errno)
        };
        let mut outcome = Ok(());
        let mut processes = Vec::new();
        for pid in pids {
            match open(*pid) {
                Ok(pidfd) => processes.push((*pid, pidfd)),
                // It has ended, or leads no thread group.
                Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => {}
                Err(errno) => outcome = outcome.and(Err(failed(*pid)(errno))),
            }
        }
        // Who is still listed after the pidfds were opened is who they refer to.
        let still = self.pids()?;
        for (pid, pidfd) in processes.iter().filter(|(pid, _)| still.binary_search(pid).is_ok()) {
            match pidfd_signal(pidfd, signal) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => outcome = outcome.and(Err(failed(*pid)(errno))),
            }
        }
        outcome
    }
}

fn open(pid: i32) -> Result<OwnedFd, Errno> {
    rustix::process::pidfd_open(Pid::from_raw(pid).ok_or(Errno::SRCH)?, PidfdFlags::empty())
}
