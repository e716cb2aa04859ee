//! Exits of processes, reported by SIGCHLD for children and by pidfds for processes of a dead monitor.

use std::time::Duration;

use rustix::{
    io::Errno,
    process::{WaitId, WaitIdOptions, WaitOptions, wait, waitid},
};

use crate::{
    child::Stage,
    monitor::Monitor,
    process::{ExitLookup, ProcessExit, look_up_exit},
    timer::Timer,
};

/// Number of attempts, and the first interval, to get the status of a process that has not been reaped by its parent.
const TRIES: u32 = 12;
const FIRST: Duration = Duration::from_millis(1);
/// Maximum number of children reaped in one iteration, which takes some milliseconds.
const WAITS_MAX: usize = 256;

impl Monitor {
    /// Reaps children: containers, exec'd processes, and orphans of which this process is the subreaper.
    ///
    /// A container without its own PID namespace can create orphans faster than they are reaped. Those beyond
    /// [`WAITS_MAX`] are reaped in the next iteration.
    pub(crate) fn reap(&mut self) {
        self.reaping = true;
        self.advance_all();
        for _ in 0..WAITS_MAX {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.reaped(pid.as_raw_nonzero().get(), ProcessExit::of(status)),
                Err(Errno::INTR) => {}
                Ok(None) | Err(_) => {
                    self.reaping = false;
                    return;
                }
            }
        }
    }

    /// Handles the messages of children that are being set up. It must happen before their exit is handled.
    fn advance_all(&mut self) {
        let setup = |(serial, child): (&u64, &crate::child::Child)| child.setup().map(|_| *serial);
        let serials: Vec<u64> = self.containers.iter().filter_map(setup).chain(self.starting_execs()).collect();
        for serial in serials {
            self.advance(serial);
        }
    }

    fn reaped(&mut self, pid: i32, exit: ProcessExit) {
        if self.terminals.reaped(pid) {
            return;
        }
        let has_pid = |child: &crate::child::Child| child.pid == pid && !child.has_ended();
        if let Some(serial) = self.containers.iter().find(|(_, child)| has_pid(child)).map(|(serial, _)| *serial) {
            // It may have reached execve and exited since its messages were handled.
            self.advance(serial);
            // No such container: its setup failed and was removed. Another pid: this was its intermediate process.
            let Some(child) = self.containers.get(&serial).filter(|child| child.pid == pid) else { return };
            if matches!(child.stage, Stage::SettingUp(..) | Stage::Failing(..)) {
                self.remove_failed_setup(serial);
            } else {
                self.process_ended(serial, exit);
            }
        } else if !self.writer_reaped(pid, exit) {
            self.maker_reaped(pid);
            self.exec_reaped(pid, exit);
        }
    }

    /// Removes a failed setup whose child was reaped before its pid was known.
    pub(crate) fn reap_failed(&mut self, serial: u64) {
        let Some(child) = self.containers.get(&serial) else { return };
        let Some(pidfd) = child.pidfd() else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        if matches!(waitid(WaitId::PidFd(pidfd), options), Ok(Some(_)) | Err(Errno::CHILD)) {
            self.remove_failed_setup(serial);
        }
    }

    /// Checks a process that may not be a child of this one. Its status is known once its parent has reaped it.
    pub(crate) fn check_exit(&mut self, serial: u64, tries: u32) {
        let Some(child) = self.containers.get(&serial) else { return };
        let Some(pidfd) = child.pidfd().filter(|_| !child.has_ended()) else { return };
        let exit = match look_up_exit(pidfd, child.pid, child.start_time) {
            ExitLookup::Exited(exit) => exit,
            ExitLookup::NotReaped if tries < TRIES => {
                return self.timers.after(FIRST * (1 << tries), Timer::Exit(serial, tries + 1));
            }
            ExitLookup::NotReaped | ExitLookup::Unknown => ProcessExit::UNKNOWN,
            ExitLookup::Alive => return,
        };
        self.process_ended(serial, exit);
    }
}
