//! Ends of log writers: of those that die and are replaced, of those that are not needed, and of all at once.

use std::time::Duration;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid},
};

use super::{BACKOFF, Writer, find, name};
use crate::{
    clock,
    log_writer::order::{End, Order},
    monitor::Monitor,
    output::{Output, Place},
    process,
    timer::Timer,
};

/// A writer without output to move ends after so long.
const IDLE: Duration = Duration::from_secs(30);
/// Most outputs that outlive their containers.
const ORPHANS_MAX: usize = 64;
/// How long writers may take to finish before they are killed, and how long killed ones are waited for: one whose file
/// system hangs takes longer than anybody waits.
pub(crate) const FAREWELL: Duration = Duration::from_millis(250);

impl Monitor {
    /// A child was reaped; whether it was a writer. What was on its way is brought home by the next one.
    pub(crate) fn writer_reaped(&mut self, pid: i32, end: process::End) -> bool {
        if let Some(at) = self.writers.ending.iter().position(|(ended, _)| *ended == pid) {
            let (_, journal) = self.writers.ending.remove(at);
            self.journals.retire(&journal);
            return true;
        }
        if let Some(at) = self.writers.hung.iter().position(|(hung, _)| *hung == pid) {
            self.writers.hung.remove(at);
            return true;
        }
        let of_pid = |(place, writer): (&Place, &Writer)| (writer.pid == pid).then_some(*place);
        let Some(place) = self.writers.list.iter().find_map(of_pid) else { return false };
        // What it said before its end.
        self.take_reports(place);
        let Some(writer) = self.writers.list.remove(&place) else { return true };
        self.epoll.forget(&writer.line);
        self.epoll.forget(&writer.alarm);
        self.writers.forgotten.retain(|_, (of, _)| *of != place);
        let how = end.signal.map_or_else(|| format!("code {:?}", end.code), |signal| format!("signal {signal}"));
        eprintln!("pinmon: the log writer of {} ended ({how}): started again", name(place));
        self.journals.retire(&writer.journal);
        if writer.held_by.is_none() && clock::monotonic().saturating_sub(writer.started) < BACKOFF {
            self.rest_writer(place);
        }
        self.set_apart(writer.held_by);
        self.renew_outputs(Some(place), writer.held_by);
        true
    }

    /// Hands outputs (of one place, else all) over again to new writers, with journals that must be recovered first.
    /// `held_by`: and that of the container that held up a writer, by serial.
    pub(crate) fn renew_outputs(&mut self, place: Option<Place>, held_by: Option<u64>) {
        let Self { containers, writers, journals, .. } = self;
        let mut serials = Vec::new();
        let live = containers.iter_mut().map(|(serial, child)| (serial, &child.id, &mut child.output));
        let orphans = writers.orphans.iter_mut().map(|(serial, (id, output))| (serial, &*id, output));
        for (serial, id, output) in live.chain(orphans) {
            let concerned = place.is_none_or(|place| place == output.place) || held_by == Some(*serial);
            if output.is_open() && concerned {
                output.lost_writer();
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

    /// The output of a container that is deleted is still moved, as long as there are not too many such.
    pub(crate) fn release_output(&mut self, serial: u64, id: String, mut output: Output) {
        let asked = std::mem::take(&mut output.reopens);
        if output.is_open() && output.awaits_log {
            // Nobody can bring a log any longer.
            eprintln!("pinmon: output of container {id}, which was deleted, is given up: it has no log");
            self.journals.recovered(&id, std::mem::take(&mut output.recover), false);
            output.close(false);
        } else if output.is_open() {
            output.end(End::Final);
            if self.writers.orphans.len() >= ORPHANS_MAX
                && let Some((oldest, (id, lost))) = self.take_orphan()
            {
                eprintln!("pinmon: output of container {id}, which was deleted, is given up: its log hangs");
                self.journals.recovered(&id, lost.recover, false);
                if let Some(writer) = self.writers.list.get_mut(&lost.place) {
                    writer.last.push(Order::Forget { serial: oldest });
                    let terminals = lost.streams.into_iter().filter(|stream| stream.file.terminal().is_some());
                    self.writers.forgotten.insert(oldest, (lost.place, terminals.collect()));
                    self.send_orders(lost.place);
                }
            }
            self.writers.orphans.insert(serial, (id, output));
            self.hand_over(serial);
        }
        self.look_after_writers_later();
        for asked in asked {
            self.reply(asked, Ok((monitor_api::Reply::Done, monitor_api::Attachments::new())));
        }
    }

    /// What deleted containers wrote and no writer moved in time is given up.
    pub(crate) fn forget_orphans(&mut self) {
        for (id, output) in std::mem::take(&mut self.writers.orphans).into_values() {
            eprintln!("pinmon: output of container {id}, which was deleted, is given up: the monitor ends");
            self.journals.recovered(&id, output.recover, false);
            self.journals.forget(&id);
        }
    }

    /// The oldest orphan, first of those that hold up writers.
    fn take_orphan(&mut self) -> Option<(u64, (String, Output))> {
        let orphans = &mut self.writers.orphans;
        let held = orphans.iter().find(|(_, (_, output))| output.place.apart.is_some()).map(|(serial, _)| *serial);
        held.and_then(|serial| orphans.remove_entry(&serial)).or_else(|| orphans.pop_first())
    }

    pub(super) fn look_after_writers_later(&mut self) {
        self.timers.within(IDLE, Timer::Writers);
    }

    /// Starts writers that are missing, ends those that were not needed for a while.
    pub(crate) fn look_after_writers(&mut self) {
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
        writers.resting.retain(|_, until| *until > now);
        let over = |(_, writer): &(&Place, &Writer)| writer.idle.is_some_and(|since| now.saturating_sub(since) >= IDLE);
        let over: Vec<Place> = writers.list.iter().filter(over).map(|(place, _)| *place).collect();
        for place in over {
            if let Some(writer) = writers.list.remove(&place) {
                writers.forgotten.retain(|_, (of, _)| *of != place);
                self.epoll.forget(&writer.line);
                self.epoll.forget(&writer.alarm);
                // It ends when its socket is closed, here.
                writers.ending.push((writer.pid, writer.journal));
            }
        }
        if writers.list.values().any(|writer| writer.idle.is_some()) {
            self.timers.within(IDLE, Timer::Writers);
        }
        for (serial, place) in open {
            let waits = find(&mut self.containers, &mut self.writers.orphans, serial).is_some_and(|(_, o)| !o.queued);
            if waits && (!self.writers.list.contains_key(&place) || self.is_unsent(serial)) {
                self.hand_over(serial);
            }
        }
    }

    fn is_unsent(&mut self, serial: u64) -> bool {
        find(&mut self.containers, &mut self.writers.orphans, serial)
            .is_some_and(|(id, output)| output.next_order(serial, id).is_some())
    }

    /// Kills all writers, so that another program can start its own. What was on its way is in their journals.
    pub(crate) fn kill_writers(&mut self) {
        let writers: Vec<Writer> = std::mem::take(&mut self.writers.list).into_values().collect();
        self.writers.forgotten.clear();
        for writer in &writers {
            self.epoll.forget(&writer.line);
            self.epoll.forget(&writer.alarm);
            let _ = pidfd_send_signal(&writer.pidfd, Signal::KILL);
        }
        let until = clock::monotonic() + FAREWELL;
        for writer in &writers {
            let left = until.saturating_sub(clock::monotonic());
            let left = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
            let _ = poll(&mut [PollFd::new(&writer.pidfd, PollFlags::IN)], Some(&left));
            // One that hangs is reaped whenever it ends.
            let _ = waitid(
                WaitId::PidFd(std::os::fd::AsFd::as_fd(&writer.pidfd)),
                WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
            );
        }
        self.journals.scan();
    }
}
