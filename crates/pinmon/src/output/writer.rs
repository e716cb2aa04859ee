//! Log writers as the monitor knows them.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use rustix::{
    fd::OwnedFd,
    fs::{major, minor},
};
use syscall::shared_word::SharedWord;

use super::streams::{Place, Stream};
use crate::{
    clock,
    event::Epoll,
    log::pipe_marker::PipeMarker,
    log_writer::{alarm::Alarm, channel::Channel, order::Order},
    process,
};

/// A step of this duration hangs, in a file system or in a pipe of a container.
pub(super) const STUCK: Duration = Duration::from_secs(1);

/// A log writer.
pub(super) struct Writer {
    /// Number in the event loop.
    pub(super) number: u64,
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    pub(super) channel: Channel,
    pub(super) journal: String,
    /// Start of its current step, in nanoseconds of [`clock::monotonic`]; 0: none.
    pub(super) busy: SharedWord,
    /// Marks whose pipe it is accessing.
    pub(super) pipe_marker: PipeMarker,
    /// Serial number of the container that blocked it, if it was killed for that.
    pub(super) blocked_by: Option<u64>,
    pub(super) alarm: Alarm,
    pub(super) started: Duration,
    /// Since when it has had no output.
    pub(super) idle: Option<Duration>,
    /// Serial numbers of outputs with pending orders, each once.
    pub(super) queue: VecDeque<u64>,
    /// Orders to close or give up outputs, which are sent first.
    pub(super) final_orders: Vec<Order>,
    /// Whether epoll reports room on its socket. It does only while orders are pending, because every order that it
    /// takes makes room.
    pub(super) awaits_room: bool,
}

/// All log writers.
#[derive(Default)]
pub(super) struct Writers {
    pub(super) list: BTreeMap<Place, Writer>,
    /// Idle log writers that were requested to exit: pid and journal.
    pub(super) stopping: Vec<(i32, String)>,
    /// Killed log writers that cannot exit, and were replaced: pid, and serial number of the container that blocks
    /// them.
    pub(super) stuck_writers: Vec<(i32, u64)>,
    /// Moments before which no log writer is started.
    pub(super) backoff_until: BTreeMap<Place, Duration>,
    /// Terminals of outputs that a log writer was requested to give up, by serial number. It has copies until it
    /// answers or exits.
    pub(super) given_up_terminals: BTreeMap<u64, (Place, Vec<Stream>)>,
}

impl Writer {
    /// Whether it is running and is not being replaced.
    pub(super) fn is_usable(&self) -> bool {
        self.blocked_by.is_none() && process::is_alive(&self.pidfd)
    }

    /// Returns the duration of its current step.
    pub(super) fn step_duration(&self) -> Option<Duration> {
        match self.busy.load() {
            0 => None,
            since => Some(clock::monotonic().saturating_sub(Duration::from_nanos(since))),
        }
    }

    /// Stops watching it.
    pub(super) fn forget(&self, epoll: &Epoll) {
        epoll.forget(&self.channel);
        epoll.forget(&self.alarm);
    }
}

impl Writers {
    /// Whether output waits for a log writer that hangs or is not running.
    pub(super) fn is_stuck(&self, place: Place) -> bool {
        self.list
            .get(&place)
            .is_none_or(|writer| writer.step_duration().is_some_and(|step_duration| step_duration >= STUCK))
    }

    pub(super) fn with_number(&self, number: u64) -> Option<&Writer> {
        self.list.values().find(|writer| writer.number == number)
    }

    pub(super) fn place_of(&self, number: u64) -> Option<Place> {
        self.list.iter().find(|(_, writer)| writer.number == number).map(|(place, _)| *place)
    }

    pub(super) fn place_of_pid(&self, pid: i32) -> Option<Place> {
        self.list.iter().find(|(_, writer)| writer.pid == pid).map(|(place, _)| *place)
    }

    /// Removes a log writer that exited, is idle or was abandoned, and stops watching it.
    pub(super) fn remove(&mut self, place: Place, epoll: &Epoll) -> Option<Writer> {
        let writer = self.list.remove(&place)?;
        writer.forget(epoll);
        self.given_up_terminals.retain(|_, (writer_place, _)| *writer_place != place);
        Some(writer)
    }
}

/// Formats a place for log messages, with the device as in `/proc/self/mountinfo`.
pub(super) fn name(place: Place) -> String {
    let device = place.device.map_or("no log".to_owned(), |device| format!("{}:{}", major(device), minor(device)));
    match place.dedicated {
        None => device,
        Some(serial) => format!("{device}, dedicated ({serial})"),
    }
}
