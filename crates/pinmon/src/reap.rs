//! The ends of processes: of our children by SIGCHLD, of those a dead monitor left by their pidfds.

use std::time::Duration;

use rustix::{
    io::Errno,
    process::{WaitId, WaitIdOptions, WaitOptions, wait, waitid},
};

use crate::{
    child::Stage,
    monitor::Monitor,
    process::{End, Known, end_of},
    timer::Timer,
};

/// How often, and how long apart at first, a process is asked that ended and was not reaped.
const TRIES: u32 = 12;
const FIRST: Duration = Duration::from_millis(1);
/// Children that are reaped in one turn of the loop: some milliseconds.
const WAITS_MAX: usize = 256;

impl Monitor {
    /// Reaps what ended: containers, commands, and orphans that came to us as their subreaper. A container without a
    /// PID namespace of its own can make orphans faster than they are reaped, so what is beyond [`WAITS_MAX`] has the
    /// next turn.
    pub(crate) fn reap(&mut self) {
        self.reaping = true;
        self.advance_all();
        for _ in 0..WAITS_MAX {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.reaped(pid.as_raw_nonzero().get(), End::of(status)),
                Err(Errno::INTR) => {}
                Ok(None) | Err(_) => {
                    self.reaping = false;
                    return;
                }
            }
        }
    }

    /// What children say before their end must be heard before their end.
    fn advance_all(&mut self) {
        let nascent = |(serial, child): (&u64, &crate::child::Child)| child.nascent().map(|_| *serial);
        let serials: Vec<u64> = self.containers.iter().filter_map(nascent).chain(self.new_commands()).collect();
        for serial in serials {
            self.advance(serial);
        }
    }

    fn reaped(&mut self, pid: i32, end: End) {
        if self.terminals.reaped(pid) {
            return;
        }
        let of_pid = |child: &crate::child::Child| child.pid == pid && !child.has_ended();
        if let Some(serial) = self.containers.iter().find(|(_, child)| of_pid(child)).map(|(serial, _)| *serial) {
            // It may have come to execve and to its end since all were heard.
            self.advance(serial);
            // Gone: it failed, and was not to be waited for. Another pid: this was its intermediate process.
            let Some(child) = self.containers.get(&serial).filter(|child| child.pid == pid) else { return };
            if matches!(child.stage, Stage::Setting(..) | Stage::Failing(..)) {
                self.setup_ended(serial);
            } else {
                self.process_ended(serial, end);
            }
        } else if !self.writer_reaped(pid, end) {
            self.maker_reaped(pid);
            self.command_reaped(pid, end);
        }
    }

    /// A child that was killed on its way may have been reaped before its pid was known.
    pub(crate) fn reap_failed(&mut self, serial: u64) {
        let Some(child) = self.containers.get(&serial) else { return };
        let Some(pidfd) = child.pidfd() else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        if matches!(waitid(WaitId::PidFd(pidfd), options), Ok(Some(_)) | Err(Errno::CHILD)) {
            self.setup_ended(serial);
        }
    }

    /// A process that is no child ended: its status is known once its parent reaped it.
    pub(crate) fn ended_elsewhere(&mut self, serial: u64, tries: u32) {
        let Some(child) = self.containers.get(&serial) else { return };
        let Some(pidfd) = child.pidfd().filter(|_| !child.has_ended()) else { return };
        let end = match end_of(pidfd, child.pid, child.start_time) {
            Known::End(end) => end,
            Known::NotYet if tries < TRIES => {
                return self.timers.after(FIRST * (1 << tries), Timer::Exit(serial, tries + 1));
            }
            Known::NotYet | Known::Never => End::UNKNOWN,
            Known::Alive => return,
        };
        self.process_ended(serial, end);
    }
}
