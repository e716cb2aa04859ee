//! Log writers that a container blocks. A writer inside a call on a container's pipe waits for the lock of the pipe as
//! long as a process of the container likes (`pipe.rs`), and no signal interrupts it.
//!
//! ```text
//! writer: sets its alarm, marks whose pipe it accesses ──expires──▶ monitor: it is in that pipe, and uninterruptible
//!            │                                                      │ kills it: it never returns to user mode
//!            │ exits when the pipe is unlocked                      ├─▶ another writer for all other containers
//!            └──────────────────────────lock of its journal─────────└─▶ a dedicated writer for that container
//! ```

use std::{collections::BTreeMap, time::Duration};

use monitor_api::Event;
use rustix::process::{Signal, pidfd_send_signal};

use super::{Writer, find};
use crate::{
    log_writer::{alarm::LATE, order::Order},
    monitor::Monitor,
    output::Place,
    process,
    timer::Timer,
};

/// Interval of checking a log writer again that may only be slow.
const RECHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of dedicated log writers. Further containers that block log writers share the common one, number 0.
const DEDICATED_MAX: usize = 32;
pub(super) const COMMON: u64 = 0;

/// Returns the number of the dedicated log writer of a container.
pub(super) fn dedicated_number(list: &BTreeMap<Place, Writer>, serial: u64) -> u64 {
    match list.keys().filter(|place| place.dedicated.is_some()).count() {
        ..DEDICATED_MAX => serial,
        _ => COMMON,
    }
}

/// Returns the log writers that are not dedicated.
pub(super) fn shared(list: &BTreeMap<Place, Writer>) -> impl DoubleEndedIterator<Item = Place> {
    list.keys().copied().filter(|place| place.dedicated.is_none())
}

impl Monitor {
    /// Handles an alarm: a step takes long, in a file system or in a pipe of a container. The writer is checked
    /// repeatedly until the step ends, because one step may do both.
    pub(crate) fn alarm_expired(&mut self, number: u64) {
        let Some(place) = self.writers.place_of(number) else { return };
        let Some(writer) = self.writers.list.get_mut(&place) else { return };
        writer.alarm.acknowledge();
        if place.dedicated.is_some() {
            // A dedicated writer only blocks containers that block writers themselves.
            return;
        }
        if writer.blocked_by.is_none() {
            if writer.step_duration().is_none() {
                return;
            }
            match writer.pipe_marker.current() {
                // A file system. `Ping` reports it if it hangs.
                None => return self.timers.within(LATE, Timer::Alarm(number)),
                Some((serial, since)) if since >= LATE && process::is_uninterruptible(writer.pid) => {
                    writer.blocked_by = Some(serial);
                    let _ = pidfd_send_signal(&writer.pidfd, Signal::KILL);
                }
                Some(_) => return self.timers.within(RECHECK_INTERVAL, Timer::Alarm(number)),
            }
        }
        // A writer that was killed and is uninterruptible never runs its program again. Otherwise its exit is reported
        // soon, or it blocks while it exits.
        match process::is_uninterruptible(writer.pid) {
            true => self.abandon_writer(place),
            false => self.timers.within(RECHECK_INTERVAL, Timer::Alarm(number)),
        }
    }

    /// Moves a container that blocked its log writer for too long in total to a dedicated one.
    pub(super) fn move_to_dedicated_writer(&mut self, serial: u64) {
        let Self { containers, writers, .. } = self;
        let Some((_, output)) = find(containers, &mut writers.orphans, serial).filter(|(_, o)| o.is_open()) else {
            return;
        };
        let place = output.place;
        output.forget_sent();
        self.assign_dedicated_writer(Some(serial));
        if let Some(writer) = self.writers.list.get_mut(&place) {
            writer.final_orders.push(Order::Close { serial });
        }
        self.send_orders(place);
        self.hand_over(serial);
    }

    /// Replaces a log writer that was killed and cannot exit.
    fn abandon_writer(&mut self, place: Place) {
        self.take_reports(place);
        let Some(writer) = self.writers.list.remove(&place) else { return };
        self.epoll.forget(&writer.channel);
        self.epoll.forget(&writer.alarm);
        self.writers.given_up_terminals.retain(|_, (writer_place, _)| *writer_place != place);
        self.writers.stuck_writers.extend(writer.blocked_by.map(|serial| (writer.pid, serial)));
        self.journals.retire(&writer.journal);
        self.assign_dedicated_writer(writer.blocked_by);
        self.reassign_outputs(Some(place), writer.blocked_by);
    }

    /// Assigns a dedicated log writer to a container that blocked its writer.
    pub(super) fn assign_dedicated_writer(&mut self, blocked_by: Option<u64>) {
        let Some(serial) = blocked_by else { return };
        let dedicated = dedicated_number(&self.writers.list, serial);
        let Self { containers, writers, .. } = self;
        let Some((id, output)) = find(containers, &mut writers.orphans, serial) else { return };
        if output.place.dedicated.is_none() {
            output.place.dedicated = Some(dedicated);
            let container = id.to_owned();
            let message =
                "a process keeps the pipe of its output locked (splice(2)); its log continues once it is unlocked";
            eprintln!("pinmon: output of container {container}: {message}; other containers are not affected");
            let dropped = output.loss.total;
            self.notify_daemon(Event::LogFailed { container, message: message.to_owned(), dropped });
        }
    }
}
