//! Log writers of the monitor (see `log_writer.rs`): the assignment of outputs, pending orders, starts and exits.
//! Nothing here waits for a log writer.

mod blocked;
mod heartbeat;
mod reports;
mod upkeep;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    os::fd::AsFd,
    time::Duration,
};

use rustix::{
    fd::OwnedFd,
    fs::{major, minor},
    io::Errno,
    process::getpid,
};
use syscall::{clone::Clone3, shared_word::SharedWord};
pub(crate) use upkeep::SHUTDOWN_TIMEOUT;

use crate::{
    child::Child,
    clock,
    log::pipe_marker::PipeMarker,
    log_writer::{self, Start, alarm::Alarm, channel::Channel, order::Order},
    monitor::Monitor,
    output::{Output, Place, Stream},
    process,
    timer::Timer,
};

/// Maximum number of file systems with a log writer. Logs on further ones share one of these writers.
const WRITERS_MAX: usize = 64;
/// Time until a log writer that failed is started again.
const BACKOFF: Duration = Duration::from_secs(1);
/// A step of this duration hangs, in a file system or in a pipe of a container.
const STUCK: Duration = Duration::from_secs(1);

/// A log writer.
pub(crate) struct Writer {
    /// Number in the event loop.
    number: u64,
    pid: i32,
    pidfd: OwnedFd,
    channel: Channel,
    journal: String,
    /// Start of its current step, in nanoseconds of [`clock::monotonic`]; 0: none.
    busy: SharedWord,
    /// Marks whose pipe it is accessing.
    pipe_marker: PipeMarker,
    /// Serial number of the container that blocked it, if it was killed for that.
    blocked_by: Option<u64>,
    alarm: Alarm,
    started: Duration,
    /// Since when it has had no output.
    idle: Option<Duration>,
    /// Serial numbers of outputs with pending orders, each once.
    queue: VecDeque<u64>,
    /// Orders to close or give up outputs, which are sent first.
    final_orders: Vec<Order>,
    /// Whether epoll reports room on its socket. It does only while orders are pending, because every order that it
    /// takes makes room.
    awaits_room: bool,
}

/// All log writers.
#[derive(Default)]
pub(crate) struct Writers {
    list: BTreeMap<Place, Writer>,
    /// Idle log writers that were requested to exit: pid and journal.
    stopping: Vec<(i32, String)>,
    /// Killed log writers that cannot exit, and were replaced: pid, and serial number of the container that blocks
    /// them.
    stuck_writers: Vec<(i32, u64)>,
    /// Moments before which no log writer is started.
    backoff_until: BTreeMap<Place, Duration>,
    /// Output of deleted containers that is not in their logs yet: id and output, by serial number.
    pub(crate) orphans: BTreeMap<u64, (String, Output)>,
    /// Terminals of outputs that a log writer was requested to give up, by serial number. It has copies until it answers or
    /// exits.
    given_up_terminals: BTreeMap<u64, (Place, Vec<Stream>)>,
}

impl Writer {
    /// Whether it is running and is not being replaced.
    fn is_usable(&self) -> bool {
        self.blocked_by.is_none() && process::is_alive(&self.pidfd)
    }

    /// Returns the duration of its current step.
    fn step_duration(&self) -> Option<Duration> {
        match self.busy.load() {
            0 => None,
            since => Some(clock::monotonic().saturating_sub(Duration::from_nanos(since))),
        }
    }
}

impl Writers {
    /// Whether output waits for a log writer that hangs or is not running.
    pub(crate) fn is_stuck(&self, place: Place) -> bool {
        self.list
            .get(&place)
            .is_none_or(|writer| writer.step_duration().is_some_and(|step_duration| step_duration >= STUCK))
    }

    /// Returns the socket of the log writer with this number, and whether it needs room to write.
    pub(crate) fn channel(&self, number: u64) -> Option<(&Channel, bool)> {
        let writer = self.list.values().find(|writer| writer.number == number);
        writer.map(|writer| (&writer.channel, writer.awaits_room))
    }

    /// Returns the alarm of the log writer with this number.
    pub(crate) fn alarm(&self, number: u64) -> Option<&Alarm> {
        self.list.values().find(|writer| writer.number == number).map(|writer| &writer.alarm)
    }

    fn place_of(&self, number: u64) -> Option<Place> {
        self.list.iter().find(|(_, writer)| writer.number == number).map(|(place, _)| *place)
    }
}

/// Returns id and output of a container, which may be deleted.
fn find<'a>(
    containers: &'a mut BTreeMap<u64, Child>,
    orphans: &'a mut BTreeMap<u64, (String, Output)>,
    serial: u64,
) -> Option<(&'a str, &'a mut Output)> {
    match containers.get_mut(&serial) {
        Some(child) => Some((&child.id, &mut child.output)),
        None => orphans.get_mut(&serial).map(|(id, output)| (id.as_str(), output)),
    }
}

/// Formats a place for log messages, with the device as in `/proc/self/mountinfo`.
fn name(place: Place) -> String {
    let device = place.device.map_or("no log".to_owned(), |device| format!("{}:{}", major(device), minor(device)));
    match place.dedicated {
        None => device,
        Some(serial) => format!("{device}, dedicated ({serial})"),
    }
}

impl Monitor {
    /// Sends the pending orders of an output to its log writer. Starts the log writer if necessary.
    pub(crate) fn hand_over(&mut self, serial: u64) {
        let Self { containers, writers, .. } = self;
        let Writers { list, orphans, .. } = writers;
        let Some((_, output)) = find(containers, orphans, serial).filter(|(_, o)| o.is_open() && !o.awaits_log) else {
            return;
        };
        if !output.recover.is_empty() && output.place.dedicated.is_none() {
            // The log writer that died may hang in a pipe of this container, and recovery waits for it.
            output.place.dedicated = Some(serial);
        }
        let is_new = output.place.dedicated.is_none() && !list.contains_key(&output.place);
        if is_new && blocked::shared(list).count() >= WRITERS_MAX {
            output.place = blocked::shared(list).next_back().expect("WRITERS_MAX is not zero");
        }
        let (place, queued) = (output.place, output.queued);
        if !self.writers.list.contains_key(&place) && !self.start_writer(place) {
            return;
        }
        let Self { containers, writers, .. } = self;
        if !queued
            && let (Some((_, output)), Some(writer)) =
                (find(containers, &mut writers.orphans, serial), writers.list.get_mut(&place))
        {
            output.queued = true;
            writer.queue.push_back(serial);
        }
        self.send_orders(place);
    }

    /// Sends pending orders to a log writer until its socket has no more room.
    fn send_orders(&mut self, place: Place) {
        self.send_waiting_orders(place);
        let Some(writer) = self.writers.list.get_mut(&place) else { return };
        let needs_room = !writer.final_orders.is_empty() || !writer.queue.is_empty();
        if writer.awaits_room != needs_room {
            writer.awaits_room = needs_room;
            let number = writer.number;
            self.watch(number);
        }
    }

    fn send_waiting_orders(&mut self, place: Place) {
        let Self { containers, writers, .. } = self;
        let Writers { list, orphans, .. } = writers;
        let Some(writer) = list.get_mut(&place) else { return };
        while let Some(order) = writer.final_orders.last() {
            match writer.channel.send(order, &[]) {
                Ok(()) => drop(writer.final_orders.pop()),
                Err(_) => return,
            }
        }
        while let Some(serial) = writer.queue.front().copied() {
            if let Some((id, output)) = find(containers, orphans, serial) {
                let mut refused = false;
                if let Some((order, files)) = output.next_order(serial, id) {
                    match writer.channel.send(&order, &files) {
                        Ok(()) => {
                            output.sent(&order);
                            continue;
                        }
                        // It has no room, or is dead and about to be reaped.
                        Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => return,
                        Err(errno) => {
                            eprintln!("pinmon: send output of container {id} to a log writer: {errno}");
                            refused = true;
                        }
                    }
                }
                output.queued = false;
                if refused {
                    self.timers.within(BACKOFF, Timer::Writers);
                }
            }
            writer.queue.pop_front();
        }
    }

    /// Starts a log writer. Returns `false` if that failed and is retried later.
    fn start_writer(&mut self, place: Place) -> bool {
        let now = clock::monotonic();
        if self.writers.backoff_until.get(&place).is_some_and(|until| *until > now) {
            return false;
        }
        match self.clone_writer(place) {
            Ok(writer) => {
                let number = writer.number;
                self.writers.list.insert(place, writer);
                self.watch(number);
                true
            }
            Err(error) => {
                eprintln!("pinmon: start the log writer of {}: {error}", name(place));
                self.back_off_writer(place);
                false
            }
        }
    }

    fn back_off_writer(&mut self, place: Place) {
        self.writers.backoff_until.insert(place, clock::monotonic() + BACKOFF);
        self.timers.within(BACKOFF, Timer::Writers);
    }

    fn clone_writer(&mut self, place: Place) -> io::Result<Writer> {
        let (channel, peer) = Channel::pair()?;
        let (busy, pipe_marker, alarm) = (SharedWord::new()?, PipeMarker::new()?, Alarm::new()?);
        let journal = self.journals.next_name();
        let (number, monitor) = (self.next_serial(), getpid());
        let state = self.journals.state();
        let start = Start {
            channel: peer,
            state: state.as_fd(),
            journal: &journal,
            busy: &busy,
            pipe_marker: &pipe_marker,
            alarm: &alarm,
            is_dedicated: place.dedicated.is_some(),
            monitor,
        };
        let cloned = Clone3::default().fork(|| log_writer::run(start));
        self.terminals.cloned();
        let child = cloned?;
        Ok(Writer {
            number,
            pid: child.pid.as_raw_pid(),
            pidfd: child.pidfd,
            channel,
            journal,
            busy,
            pipe_marker,
            blocked_by: None,
            alarm,
            started: clock::monotonic(),
            idle: None,
            queue: VecDeque::new(),
            final_orders: Vec::new(),
            awaits_room: false,
        })
    }
}
