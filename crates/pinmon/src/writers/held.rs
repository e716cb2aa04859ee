//! Log writers that a container holds up: one that is inside a call on a container's pipe waits for the pipe's lock as
//! long as a process of the container likes (`pipe.rs`), and no signal ends that.
//!
//! ```text
//! writer: sets its alarm, notes whose pipe it touches ──rings──▶ monitor: it is in that pipe, and uninterruptible
//!            │                                                      │ kills it: it runs none of its program any more
//!            │ ends when the container lets go, or ends             ├─▶ another writer for all others
//!            └──────────────────────────lock of its journal─────────└─▶ a writer apart for that container, for life
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

/// When a writer is looked at again that may have been slow only.
const AGAIN: Duration = Duration::from_millis(20);
/// Most writers for one container each; 0, their common one, is for the others that hold writers up.
const APART_MAX: usize = 32;
pub(super) const COMMON: u64 = 0;

/// Under which name a container has a writer apart.
pub(super) fn apart(list: &BTreeMap<Place, Writer>, serial: u64) -> u64 {
    match list.keys().filter(|place| place.apart.is_some()).count() {
        ..APART_MAX => serial,
        _ => COMMON,
    }
}

/// Writers for all outputs of a file system.
pub(super) fn shared(list: &BTreeMap<Place, Writer>) -> impl DoubleEndedIterator<Item = Place> {
    list.keys().copied().filter(|place| place.apart.is_none())
}

impl Monitor {
    /// A writer's alarm rang: a step takes its time, in a file system or in a container's pipe. It is looked at again
    /// and again until that step ends: it may come from the one to the other.
    pub(crate) fn alarm_rang(&mut self, number: u64) {
        let Some(place) = self.writers.place_of(number) else { return };
        let Some(writer) = self.writers.list.get_mut(&place) else { return };
        writer.alarm.heard();
        if place.apart.is_some() {
            // It holds up nobody, or others that do the same.
            return;
        }
        if writer.held_by.is_none() {
            if writer.waits().is_none() {
                return;
            }
            match writer.held.by() {
                // A file system, which `Ping` reports when it hangs.
                None => return self.timers.within(LATE, Timer::Alarm(number)),
                Some((serial, since)) if since >= LATE && process::is_uninterruptible(writer.pid) => {
                    writer.held_by = Some(serial);
                    let _ = pidfd_send_signal(&writer.pidfd, Signal::KILL);
                }
                Some(_) => return self.timers.within(AGAIN, Timer::Alarm(number)),
            }
        }
        // Killed and still there, it has not run since: it never will. Else its end is reported in a moment, or it
        // hangs in it.
        match process::is_uninterruptible(writer.pid) {
            true => self.leave_writer(place),
            false => self.timers.within(AGAIN, Timer::Alarm(number)),
        }
    }

    /// A container held up its writer for too long, all in all: another one goes on.
    pub(super) fn held_too_long(&mut self, serial: u64) {
        let Self { containers, writers, .. } = self;
        let Some((_, output)) = find(containers, &mut writers.orphans, serial).filter(|(_, o)| o.is_open()) else {
            return;
        };
        let place = output.place;
        output.lost_writer();
        self.set_apart(Some(serial));
        if let Some(writer) = self.writers.list.get_mut(&place) {
            writer.last.push(Order::Close { serial });
        }
        self.send_orders(place);
        self.hand_over(serial);
    }

    /// Goes on without a writer that was killed and cannot end.
    fn leave_writer(&mut self, place: Place) {
        self.take_reports(place);
        let Some(writer) = self.writers.list.remove(&place) else { return };
        self.epoll.forget(&writer.line);
        self.epoll.forget(&writer.alarm);
        self.writers.forgotten.retain(|_, (of, _)| *of != place);
        self.writers.hung.extend(writer.held_by.map(|serial| (writer.pid, serial)));
        self.journals.retire(&writer.journal);
        self.set_apart(writer.held_by);
        self.renew_outputs(Some(place), writer.held_by);
    }

    /// Gives a container that held up a writer one of its own.
    pub(super) fn set_apart(&mut self, held_by: Option<u64>) {
        let Some(serial) = held_by else { return };
        let apart = apart(&self.writers.list, serial);
        let Self { containers, writers, .. } = self;
        let Some((id, output)) = find(containers, &mut writers.orphans, serial) else { return };
        if output.place.apart.is_none() {
            output.place.apart = Some(apart);
            let container = id.to_owned();
            let message = "a process of it keeps its output's pipe locked (splice(2)): its log goes on once it lets go";
            eprintln!("pinmon: output of container {container}: {message}; others are not concerned");
            let dropped = output.loss.total;
            self.tell(Event::LogFailed { container, message: message.to_owned(), dropped });
        }
    }
}
