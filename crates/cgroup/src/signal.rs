use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use syscall::pidfd_signal::pidfd_signal;

use crate::{Error, Group, controller::Controller};

const SIGKILL: i32 = 9;
/// The maximum number of passes over a group whose processes fork faster than they can be listed.
const PASSES_MAX: usize = 64;
/// The maximum number of pidfds that are open at the same time.
const BATCH: usize = 256;

impl Group {
    /// Sends SIGKILL to all processes of the group and its descendants, including those that are being forked: by
    /// `cgroup.kill` (Linux 5.14), else by freezing the group first. Frozen processes are thawed. Does not wait,
    /// neither for the processes to exit nor for the group to freeze; so without `cgroup.kill` a process that is being
    /// forked may survive until the next call. A group that does not exist is not an error.
    ///
    /// Processes that are frozen in v1 freezer groups below the group die only after [`Group::thaw_descendants`].
    pub fn kill(&self) -> Result<(), Error> {
        if let Some(tree) = self.trees.v2() {
            let file = self.file(tree, "cgroup.kill");
            match tree.try_write(&file, "1") {
                Ok(()) | Err(Errno::NODEV) => return self.thaw_in_v1(),
                Err(Errno::NOENT | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(tree.write_failed(&file, "1", errno)),
            }
        }
        if !self.primary()?.exists(self.path().relative()) {
            return Ok(());
        }
        self.kill_listed()
    }

    /// Thaws the group in the v1 freezer of a hybrid host: another program may have frozen it there, and frozen
    /// processes do not die. An exec group has no directory of its own there.
    fn thaw_in_v1(&self) -> Result<(), Error> {
        let freezer = self.trees.with(Controller::Freezer).filter(|tree| !tree.v2 && !self.is_exec_group());
        let Some(tree) = freezer else { return Ok(()) };
        let file = self.file(tree, "freezer.state");
        match tree.try_write(&file, "THAWED") {
            // The group does not exist, or belongs to another user.
            Ok(()) | Err(Errno::NODEV | Errno::NOENT | Errno::ACCESS | Errno::PERM) => Ok(()),
            Err(errno) => Err(tree.write_failed(&file, "THAWED", errno)),
        }
    }

    /// Kills the listed processes until a pass finds no new ones. Frozen processes do not fork; a process that was
    /// forked before is found by the next pass.
    fn kill_listed(&self) -> Result<(), Error> {
        let freezing = self.begin_freeze().is_ok();
        let mut killed = Ok(());
        let mut known: Vec<Pid> = Vec::new();
        for _ in 0..PASSES_MAX {
            killed = self.signal(SIGKILL);
            let now = self.pids().unwrap_or_default();
            let fresh = now.iter().any(|pid| position(&known, *pid).is_none());
            known = now;
            if !fresh || killed.is_err() {
                break;
            }
        }
        // On v1, frozen processes die only after they are thawed.
        if freezing {
            self.thaw()?;
        }
        killed
    }

    /// Sends a signal (1 to 64) to all processes of the group and its descendants. A process that is forked in the
    /// meantime may not get it (use [`Group::kill`] for SIGKILL). If a process exits in the meantime, the signal is
    /// never sent to another process with its pid.
    pub fn signal(&self, signal: i32) -> Result<(), Error> {
        if !(1..=64).contains(&signal) {
            return Err(Error::invalid("signal", format!("{signal} is not between 1 and 64")));
        }
        let pids = self.pids()?;
        let mut outcome = Ok(());
        for batch in pids.chunks(BATCH) {
            let sent = self.signal_batch(batch, signal);
            outcome = outcome.and(sent);
        }
        outcome
    }

    /// Sends the signal to these processes. Returns the first error, after all were tried.
    fn signal_batch(&self, pids: &[Pid], signal: i32) -> Result<(), Error> {
        let failed = |pid: Pid| {
            let operation = format!("send signal {signal} to process {pid} of");
            move |errno: Errno| Error::io(operation.clone(), self.path().to_string(), errno)
        };
        let mut outcome = Ok(());
        let mut processes = Vec::new();
        for pid in pids {
            match pidfd_open(*pid, PidfdFlags::empty()) {
                Ok(pidfd) => processes.push((*pid, pidfd)),
                // The process has exited, or is not a thread group leader.
                Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => {}
                Err(errno) => outcome = outcome.and(Err(failed(*pid)(errno))),
            }
        }
        // A pid that is still listed after its pidfd was opened is that of the same process.
        let current = self.pids()?;
        for (pid, pidfd) in processes.iter().filter(|(pid, _)| position(&current, *pid).is_some()) {
            match pidfd_signal(pidfd, signal) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => outcome = outcome.and(Err(failed(*pid)(errno))),
            }
        }
        outcome
    }
}

/// Searches a sorted list.
fn position(pids: &[Pid], pid: Pid) -> Option<usize> {
    pids.binary_search_by_key(&pid.as_raw_pid(), |other| other.as_raw_pid()).ok()
}
