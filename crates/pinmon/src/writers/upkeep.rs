//! Exit of log writers: replacement of those that died, and shutdown of idle ones and of all.

use std::time::Duration;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid},
};

use super::{BACKOFF, Writer, find, name};
use crate::{
    clock,
    log_writer::order::{EndPhase, Order},
    monitor::Monitor,
    output::{Output, Place},
    process,
    timer::Timer,
};

/// Time after which an idle log writer exits.
const IDLE: Duration = Duration::from_secs(30);
/// Maximum number of deleted containers whose output is still moved.
const ORPHANS_MAX: usize = 64;
/// Time limit for finishing output at shutdown, and for the exit of killed log writers. A writer whose file system
/// hangs takes longer.
pub(crate) const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(250);

impl Monitor {
    /// Handles a reaped child. Returns whether it was a log writer. Its successor recovers the batch in progress.
    pub(crate) fn writer_reaped(&mut self, pid: i32, exit: process::ProcessExit) -> bool {
        if let Some(at) = self.writers.stopping.iter().position(|(ended, _)| *ended == pid) {
            let (_, journal) = self.writers.stopping.remove(at);
            self.journals.retire(&journal);
            return true;
        }
        if let Some(at) = self.writers.stuck_writers.iter().position(|(stuck, _)| *stuck == pid) {
            self.writers.stuck_writers.remove(at);
            return true;
        }
        let has_pid = |(place, writer): (&Place, &Writer)| (writer.pid == pid).then_some(*place);
        let Some(place) = self.writers.list.iter().find_map(has_pid) else { return false };
        // Handle its last reports.
        self.take_reports(place);
        let Some(writer) = self.writers.list.remove(&place) else { return true };
        self.epoll.forget(&writer.channel);
        self.epoll.forget(&writer.alarm);
        self.writers.given_up_terminals.retain(|_, (writer_place, _)| *writer_place != place);
        let status = exit.signal.map_or_else(|| format!("code {:?}", exit.code), |signal| format!("signal {signal}"));
        eprintln!("pinmon: the log writer of {} exited ({status}); starting it again", name(place));
        self.journals.retire(&writer.journal);
        if writer.blocked_by.is_none() && clock::monotonic().saturating_sub(writer.started) < BACKOFF {
            self.back_off_writer(place);
        }
        self.assign_dedicated_writer(writer.blocked_by);
        self.reassign_outputs(Some(place), writer.blocked_by);
        true
    }

    /// Reassigns outputs to new log writers, with the journals to recover first.
    ///
    /// `place`: only outputs of this place; `None`: all. `blocked_by`: also that of the container that blocked a log
    /// writer.
    pub(crate) fn reassign_outputs(&mut self, place: Option<Place>, blocked_by: Option<u64>) {
        let Self { containers, writers, journals, .. } = self;
        let mut serials = Vec::new();
        let live = containers.iter_mut().map(|(serial, child)| (serial, &child.id, &mut child.output));
        let orphans = writers.orphans.iter_mut().map(|(serial, (id, output))| (serial, &*id, output));
        for (serial, id, output) in live.chain(orphans) {
            let affected = place.is_none_or(|place| place == output.place) || blocked_by == Some(*serial);
            if output.is_open() && affected {
                output.forget_sent();
                if let Some(device) = journals.device_of(id) {
                    output.place.device = device;
                }
                output.recover.extend(journals.take(id));
                serials.push(*serial);
            }
        }
        for serial in serials {
            self.hand_over(serial);
        }
    }

    /// Keeps moving the output of a deleted container, up to a maximum number of them.
    pub(crate) fn release_output(&mut self, serial: u64, id: String, mut output: Output) {
        let reopens = std::mem::take(&mut output.reopens);
        if output.is_open() && output.awaits_log {
            // No request can attach a log any longer.
            eprintln!("pinmon: output of deleted container {id} is dropped: it has no log");
            self.journals.recovered(&id, std::mem::take(&mut output.recover), false);
            output.close(false);
        } else if output.is_open() {
            output.end(EndPhase::Final);
            if self.writers.orphans.len() >= ORPHANS_MAX
                && let Some((oldest, (id, dropped))) = self.take_orphan()
            {
                eprintln!("pinmon: output of deleted container {id} is dropped: its log hangs");
                self.journals.recovered(&id, dropped.recover, false);
                if let Some(writer) = self.writers.list.get_mut(&dropped.place) {
                    writer.final_orders.push(Order::Forget { serial: oldest });
                    let terminals = dropped.streams.into_iter().filter(|stream| stream.file.terminal().is_some());
                    self.writers.given_up_terminals.insert(oldest, (dropped.place, terminals.collect()));
                    self.send_orders(dropped.place);
                }
            }
            self.writers.orphans.insert(serial, (id, output));
            self.hand_over(serial);
        }
        self.maintain_writers_later();
        for request_id in reopens {
            self.reply(request_id, Ok((monitor_api::Reply::Done, monitor_api::Attachments::new())));
        }
    }

    /// Gives up the output of deleted containers that was not moved in time.
    pub(crate) fn drop_orphans(&mut self) {
        for (id, output) in std::mem::take(&mut self.writers.orphans).into_values() {
            eprintln!("pinmon: output of deleted container {id} is dropped: the monitor exits");
            self.journals.recovered(&id, output.recover, false);
            self.journals.forget(&id);
        }
    }

    /// Takes the oldest orphan, preferably of a container that blocks log writers.
    fn take_orphan(&mut self) -> Option<(u64, (String, Output))> {
        let orphans = &mut self.writers.orphans;
        let dedicated =
            orphans.iter().find(|(_, (_, output))| output.place.dedicated.is_some()).map(|(serial, _)| *serial);
        dedicated.and_then(|serial| orphans.remove_entry(&serial)).or_else(|| orphans.pop_first())
    }

    pub(super) fn maintain_writers_later(&mut self) {
        self.timers.within(IDLE, Timer::Writers);
    }

    /// Starts missing log writers, and stops those that were idle for a while.
    pub(crate) fn maintain_writers(&mut self) {
        let now = clock::monotonic();
        let Self { containers, writers, .. } = self;
        let live = containers.iter().map(|(serial, child)| (*serial, &child.output));
        let orphans = writers.orphans.iter().map(|(serial, (_, output))| (*serial, output));
        let open: Vec<(u64, Place)> =
            live.chain(orphans).filter(|(_, o)| o.is_open()).map(|(serial, o)| (serial, o.place)).collect();
        for (place, writer) in &mut writers.list {
            let used = open.iter().any(|(_, of)| of == place);
            writer.idle = if used { None } else { writer.idle.or(Some(now)) };
        }
        writers.backoff_until.retain(|_, until| *until > now);
        let idle_places =
            |(_, writer): &(&Place, &Writer)| writer.idle.is_some_and(|since| now.saturating_sub(since) >= IDLE);
        let idle_places: Vec<Place> = writers.list.iter().filter(idle_places).map(|(place, _)| *place).collect();
        for place in idle_places {
            if let Some(writer) = writers.list.remove(&place) {
                writers.given_up_terminals.retain(|_, (writer_place, _)| *writer_place != place);
                self.epoll.forget(&writer.channel);
                self.epoll.forget(&writer.alarm);
                // It exits when its socket is closed, which happens here.
                writers.stopping.push((writer.pid, writer.journal));
            }
        }
        if writers.list.values().any(|writer| writer.idle.is_some()) {
            self.timers.within(IDLE, Timer::Writers);
        }
        for (serial, place) in open {
            let is_unqueued =
                find(&mut self.containers, &mut self.writers.orphans, serial).is_some_and(|(_, o)| !o.queued);
            if is_unqueued && (!self.writers.list.contains_key(&place) || self.is_unsent(serial)) {
                self.hand_over(serial);
            }
        }
    }

    fn is_unsent(&mut self, serial: u64) -> bool {
        find(&mut self.containers, &mut self.writers.orphans, serial)
            .is_some_and(|(id, output)| output.next_order(serial, id).is_some())
    }

    /// Kills all log writers, so that another program can start its own. Batches in progress are in their journals.
    pub(crate) fn kill_writers(&mut self) {
        let writers: Vec<Writer> = std::mem::take(&mut self.writers.list).into_values().collect();
        self.writers.given_up_terminals.clear();
        for writer in &writers {
            self.epoll.forget(&writer.channel);
            self.epoll.forget(&writer.alarm);
            let _ = pidfd_send_signal(&writer.pidfd, Signal::KILL);
        }
        let until = clock::monotonic() + SHUTDOWN_TIMEOUT;
        for writer in &writers {
            let remaining = until.saturating_sub(clock::monotonic());
            let remaining = Timespec { tv_sec: 0, tv_nsec: i64::from(remaining.subsec_nanos()) };
            let _ = poll(&mut [PollFd::new(&writer.pidfd, PollFlags::IN)], Some(&remaining));
            // A writer that hangs is reaped when it exits.
            let _ = waitid(
                WaitId::PidFd(std::os::fd::AsFd::as_fd(&writer.pidfd)),
                WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
            );
        }
        self.journals.scan();
    }
}
