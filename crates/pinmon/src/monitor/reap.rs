//! Exits of children, reported by SIGCHLD.

use rustix::{
    io::Errno,
    process::{WaitId, WaitIdOptions, WaitOptions, wait, waitid},
};

use super::Monitor;
use crate::{
    containers::{Container, Stage},
    process::ProcessExit,
};

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
        let containers = self.containers.iter().filter(|(_, container)| container.setup().is_some());
        let (containers, execs): (Vec<u64>, Vec<u64>) =
            (containers.map(|(serial, _)| serial).collect(), self.execs.starting().collect());
        for serial in containers {
            self.advance_container(serial);
        }
        for serial in execs {
            self.execs.advance(serial, &mut self.services);
        }
    }

    fn reaped(&mut self, pid: i32, exit: ProcessExit) {
        if self.services.closers.reaped(pid) {
            return;
        }
        if let Some(end) = self.runtime_commands.reaped(pid, exit, &mut self.services.timers) {
            return self.runtime_command_ended(end);
        }
        if let Some(serial) = self.containers.with_pid(pid) {
            // It may have reached execve and exited since its messages were handled.
            self.advance_container(serial);
            // No such container: its setup failed and was removed. Another pid: this was its intermediate process.
            let has_pid = |container: &&Container| container.pid() == pid;
            let Some(container) = self.containers.get(serial).filter(has_pid) else { return };
            if matches!(container.stage, Stage::SettingUp(..) | Stage::Failing(..)) {
                self.remove_failed_setup(serial);
            } else {
                self.process_ended(serial, exit);
            }
        } else if !self.writer_reaped(pid, exit) {
            self.namespace_makers.reaped(pid, &mut self.services);
            self.exec_reaped(pid, exit);
        }
    }

    /// Removes a failed setup whose child was reaped before its pid was known.
    pub(super) fn reap_failed(&mut self, serial: u64) {
        let Some(pidfd) = self.containers.get(serial).and_then(Container::pidfd) else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        if matches!(waitid(WaitId::PidFd(pidfd), options), Ok(Some(_)) | Err(Errno::CHILD)) {
            self.remove_failed_setup(serial);
        }
    }
}
