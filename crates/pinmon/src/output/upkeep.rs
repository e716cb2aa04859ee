//! Exit of log writers: replacement of those that died, and shutdown of idle ones and of all.

use std::{os::fd::AsFd, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid},
};

use super::{
    Outputs,
    orders::BACKOFF,
    streams::Place,
    writer::{Writer, name},
};
use crate::{clock, event::Timer, process::ProcessExit, services::Services};

/// Time after which an idle log writer exits.
const IDLE: Duration = Duration::from_secs(30);
/// Time limit for finishing output at shutdown, and for the exit of killed log writers. A writer whose file system
/// hangs takes longer.
pub(crate) const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(250);

impl Outputs {
    /// Handles a reaped child. Returns whether it was a log writer that had been replaced or requested to exit.
    pub(crate) fn reaped_unused_writer(&mut self, pid: i32) -> bool {
        if let Some(at) = self.writers.stopping.iter().position(|(ended, _)| *ended == pid) {
            let (_, journal) = self.writers.stopping.remove(at);
            self.journals.retire(&journal);
            return true;
        }
        if let Some(at) = self.writers.stuck_writers.iter().position(|(stuck, _)| *stuck == pid) {
            self.writers.stuck_writers.remove(at);
            return true;
        }
        false
    }

    /// Replaces a log writer that was reaped and whose last reports were handled. Its successor recovers the batch in
    /// progress.
    pub(crate) fn replace_writer(&mut self, place: Place, exit: ProcessExit, services: &mut Services) {
        let Some(writer) = self.writers.remove(place, &services.epoll) else { return };
        let status = exit.signal.map_or_else(|| format!("code {:?}", exit.code), |signal| format!("signal {signal}"));
        eprintln!("pinmon: the log writer of {} exited ({status}); starting it again", name(place));
        self.journals.retire(&writer.journal);
        if writer.blocked_by.is_none() && clock::monotonic().saturating_sub(writer.started) < BACKOFF {
            self.back_off(place, services);
        }
        self.assign_dedicated_writer(writer.blocked_by, services);
        self.reassign(Some(place), writer.blocked_by, services);
    }

    /// Reassigns outputs to new log writers, with the journals to recover first.
    ///
    /// `place`: only outputs of this place; `None`: all. `blocked_by`: also that of the container that blocked a log
    /// writer.
    pub(crate) fn reassign(&mut self, place: Option<Place>, blocked_by: Option<u64>, services: &mut Services) {
        let Self { map, journals, .. } = self;
        let mut serials = Vec::new();
        for (serial, output) in map.iter_mut() {
            let affected = place.is_none_or(|place| place == output.place) || blocked_by == Some(serial);
            if output.is_open() && affected {
                output.forget_sent();
                if let Some(device) = journals.device_of(&output.container) {
                    output.place.device = device;
                }
                output.recover.extend(journals.take(&output.container));
                serials.push(serial);
            }
        }
        for serial in serials {
            self.hand_over(serial, services);
        }
    }

    pub(super) fn maintain_later(&self, services: &mut Services) {
        services.timers.within(IDLE, Timer::Writers);
    }

    /// Starts missing log writers, and stops those that were idle for a while.
    pub(crate) fn maintain(&mut self, services: &mut Services) {
        let now = clock::monotonic();
        let open: Vec<(u64, Place)> =
            self.map.iter().filter(|(_, o)| o.is_open()).map(|(serial, o)| (serial, o.place)).collect();
        for (place, writer) in &mut self.writers.list {
            let used = open.iter().any(|(_, of)| of == place);
            writer.idle = if used { None } else { writer.idle.or(Some(now)) };
        }
        self.writers.backoff_until.retain(|_, until| *until > now);
        self.stop_idle_writers(now, services);
        if self.writers.list.values().any(|writer| writer.idle.is_some()) {
            services.timers.within(IDLE, Timer::Writers);
        }
        for (serial, place) in open {
            let is_unqueued = self.map.get_mut(serial).is_some_and(|output| !output.queued);
            if is_unqueued && (!self.writers.list.contains_key(&place) || self.is_unsent(serial)) {
                self.hand_over(serial, services);
            }
        }
    }

    fn stop_idle_writers(&mut self, now: Duration, services: &Services) {
        let is_idle = |writer: &Writer| writer.idle.is_some_and(|since| now.saturating_sub(since) >= IDLE);
        let places = self.writers.list.iter().filter(|(_, writer)| is_idle(writer)).map(|(place, _)| *place);
        for place in places.collect::<Vec<Place>>() {
            if let Some(writer) = self.writers.remove(place, &services.epoll) {
                // It exits when its socket is closed, which happens here.
                self.writers.stopping.push((writer.pid, writer.journal));
            }
        }
    }

    fn is_unsent(&mut self, serial: u64) -> bool {
        self.map.get_mut(serial).is_some_and(|output| output.next_order(serial).is_some())
    }

    /// Kills all log writers, so that another program can start its own. Batches in progress are in their journals.
    pub(crate) fn kill_writers(&mut self, services: &Services) {
        let writers: Vec<Writer> = std::mem::take(&mut self.writers.list).into_values().collect();
        self.writers.given_up_terminals.clear();
        for writer in &writers {
            writer.forget(&services.epoll);
            let _ = pidfd_send_signal(&writer.pidfd, Signal::KILL);
        }
        let until = clock::monotonic() + SHUTDOWN_TIMEOUT;
        for writer in &writers {
            let remaining = until.saturating_sub(clock::monotonic());
            let remaining = Timespec { tv_sec: 0, tv_nsec: i64::from(remaining.subsec_nanos()) };
            let _ = poll(&mut [PollFd::new(&writer.pidfd, PollFlags::IN)], Some(&remaining));
            // A writer that hangs is reaped when it exits.
            let _ = waitid(WaitId::PidFd(writer.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
        self.journals.scan();
    }
}
