//! Log writers that a container blocks. A writer inside a call on a container's pipe waits for the lock of the pipe as
//! long as a process of the container likes (`closing/pipe.rs`), and no signal interrupts it.
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

use super::{Outputs, streams::Place, writer::Writer};
use crate::{
    event::Timer,
    log_writer::{alarm::LATE, order::Order},
    process,
    services::Services,
};

/// Interval of checking a log writer again that may only be slow.
const RECHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of dedicated log writers. Further containers that block log writers share the common one, number 0.
const DEDICATED_MAX: usize = 32;
pub(super) const COMMON: u64 = 0;

/// What an alarm means for its log writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AlarmOutcome {
    /// It was handled, or is checked again later.
    Handled,
    /// The writer was killed and cannot exit: [`Outputs::abandon_writer`], after its last reports.
    Abandon(Place),
}

/// Returns the number of the dedicated log writer of a container.
fn dedicated_number(list: &BTreeMap<Place, Writer>, serial: u64) -> u64 {
    match list.keys().filter(|place| place.dedicated.is_some()).count() {
        ..DEDICATED_MAX => serial,
        _ => COMMON,
    }
}

/// Returns the log writers that are not dedicated.
pub(super) fn shared(list: &BTreeMap<Place, Writer>) -> impl DoubleEndedIterator<Item = Place> {
    list.keys().copied().filter(|place| place.dedicated.is_none())
}

impl Outputs {
    /// Handles an alarm: a step takes long, in a file system or in a pipe of a container. The writer is checked
    /// repeatedly until the step ends, because one step may do both.
    pub(crate) fn alarm_expired(&mut self, number: u64, services: &mut Services) -> AlarmOutcome {
        let Some(place) = self.writers.place_of(number) else { return AlarmOutcome::Handled };
        let Some(writer) = self.writers.list.get_mut(&place) else { return AlarmOutcome::Handled };
        writer.alarm.acknowledge();
        if place.dedicated.is_some() {
            // A dedicated writer only blocks containers that block writers themselves.
            return AlarmOutcome::Handled;
        }
        let mut check_within = |delay| {
            services.timers.within(delay, Timer::Alarm(number));
            AlarmOutcome::Handled
        };
        if writer.blocked_by.is_none() {
            if writer.step_duration().is_none() {
                return AlarmOutcome::Handled;
            }
            match writer.pipe_marker.current() {
                // A file system. `Ping` reports it if it hangs.
                None => return check_within(LATE),
                Some((serial, since)) if since >= LATE && process::is_uninterruptible(writer.pid) => {
                    writer.blocked_by = Some(serial);
                    let _ = pidfd_send_signal(&writer.pidfd, Signal::KILL);
                }
                Some(_) => return check_within(RECHECK_INTERVAL),
            }
        }
        // A writer that was killed and is uninterruptible never runs its program again. Otherwise its exit is reported
        // soon, or it blocks while it exits.
        match process::is_uninterruptible(writer.pid) {
            true => AlarmOutcome::Abandon(place),
            false => check_within(RECHECK_INTERVAL),
        }
    }

    /// Moves a container that blocked its log writer for too long in total to a dedicated one.
    pub(super) fn move_to_dedicated_writer(&mut self, serial: u64, services: &mut Services) {
        let Some(output) = self.map.get_mut(serial).filter(|output| output.is_open()) else { return };
        let place = output.place;
        output.forget_sent();
        self.assign_dedicated_writer(Some(serial), services);
        if let Some(writer) = self.writers.list.get_mut(&place) {
            writer.final_orders.push(Order::Close { serial });
        }
        self.send_orders(place, services);
        self.hand_over(serial, services);
    }

    /// Replaces a log writer that was killed and cannot exit.
    pub(crate) fn abandon_writer(&mut self, place: Place, services: &mut Services) {
        let Some(writer) = self.writers.remove(place, &services.epoll) else { return };
        self.writers.stuck_writers.extend(writer.blocked_by.map(|serial| (writer.pid, serial)));
        self.journals.retire(&writer.journal);
        self.assign_dedicated_writer(writer.blocked_by, services);
        self.reassign(Some(place), writer.blocked_by, services);
    }

    /// Assigns a dedicated log writer to a container that blocked its writer.
    pub(super) fn assign_dedicated_writer(&mut self, blocked_by: Option<u64>, services: &mut Services) {
        let Some(serial) = blocked_by else { return };
        let dedicated = dedicated_number(&self.writers.list, serial);
        let Some(output) = self.map.get_mut(serial).filter(|output| output.place.dedicated.is_none()) else { return };
        output.place.dedicated = Some(dedicated);
        let container = output.container.clone();
        let message = "a process keeps the pipe of its output locked (splice(2)), or the machine is overloaded; its log \
                       continues once the pipe responds";
        eprintln!("pinmon: output of container {container}: {message}; other containers are not affected");
        services.notify(Event::LogFailed { container, message: message.to_owned(), dropped: output.loss.total });
    }
}
