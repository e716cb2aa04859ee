//! The monitor's log writers (`log_writer.rs` says what they are): which output belongs to which, orders on their way
//! to them, their starts and ends. Nothing here waits for a writer.

mod heartbeat;
mod held;
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
pub(crate) use upkeep::FAREWELL;

use crate::{
    child::Child,
    clock,
    log::hold::Held,
    log_writer::{self, Start, alarm::Alarm, line::Line, order::Order},
    monitor::Monitor,
    output::{Output, Place, Stream},
    process,
    timer::Timer,
};

/// Most file systems with a writer of their own; logs on others go to one of these.
const WRITERS_MAX: usize = 64;
/// How long a writer that fails waits until it is started again.
const BACKOFF: Duration = Duration::from_secs(1);
/// A step that takes so long hangs, in a file system or a container's pipe.
const STUCK: Duration = Duration::from_secs(1);

/// A process that writes logs.
pub(crate) struct Writer {
    /// Names it in the event loop.
    number: u64,
    pid: i32,
    pidfd: OwnedFd,
    line: Line,
    journal: String,
    /// Since when it has touched files or pipes, nanoseconds of [`clock::monotonic`]; 0: it does not.
    busy: SharedWord,
    /// Whose pipe it is in.
    held: Held,
    /// It was killed for being held up by this one, by serial.
    held_by: Option<u64>,
    alarm: Alarm,
    started: Duration,
    /// Since when it has had no output to move.
    idle: Option<Duration>,
    /// Outputs, by serial, with something that it was not sent yet; each once.
    queue: VecDeque<u64>,
    /// Last orders: outputs that it is to close, or to give up.
    last: Vec<Order>,
    /// Room on its socket is reported. Only where something waits for it: every order that it takes is room.
    awaits_room: bool,
}

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Writers {
    list: BTreeMap<Place, Writer>,
    /// Asked to end, with nothing to do: pid and journal.
    ending: Vec<(i32, String)>,
    /// Killed, and held up by containers that go on with other writers: pids, and serials of the containers.
    hung: Vec<(i32, u64)>,
    /// Until when none is started.
    resting: BTreeMap<Place, Duration>,
    /// Output of containers that were deleted before it was in their logs, by serial, with their ids.
    pub(crate) orphans: BTreeMap<u64, (String, Output)>,
    /// Terminals of outputs that a writer is asked to give up, by serial: it has copies until it says so, or died.
    forgotten: BTreeMap<u64, (Place, Vec<Stream>)>,
}

impl Writer {
    /// Whether it runs and is not to end.
    fn lives(&self) -> bool {
        self.held_by.is_none() && process::is_alive(&self.pidfd)
    }

    /// How long its present step has taken.
    fn waits(&self) -> Option<Duration> {
        match self.busy.load() {
            0 => None,
            since => Some(clock::monotonic().saturating_sub(Duration::from_nanos(since))),
        }
    }
}

impl Writers {
    /// Whether output that goes there waits for a writer that hangs, or for a writer at all.
    pub(crate) fn is_stuck(&self, place: Place) -> bool {
        self.list.get(&place).is_none_or(|writer| writer.waits().is_some_and(|waits| waits >= STUCK))
    }

    /// The socket of the writer with this number, and whether something waits for room on it.
    pub(crate) fn line(&self, number: u64) -> Option<(&Line, bool)> {
        let found = self.list.values().find(|writer| writer.number == number);
        found.map(|writer| (&writer.line, writer.awaits_room))
    }

    /// Its alarm.
    pub(crate) fn alarm(&self, number: u64) -> Option<&Alarm> {
        self.list.values().find(|writer| writer.number == number).map(|writer| &writer.alarm)
    }

    fn place_of(&self, number: u64) -> Option<Place> {
        self.list.iter().find(|(_, writer)| writer.number == number).map(|(place, _)| *place)
    }
}

/// A container's output and id, be the container there or deleted.
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

/// For people: as in `/proc/self/mountinfo`.
fn name(place: Place) -> String {
    let device = place.device.map_or("no log".to_owned(), |device| format!("{}:{}", major(device), minor(device)));
    match place.apart {
        None => device,
        Some(serial) => format!("{device}, apart ({serial})"),
    }
}

impl Monitor {
    /// Sends its writer what is new of a container's output, if there is any output; starts the writer where there is
    /// none.
    pub(crate) fn hand_over(&mut self, serial: u64) {
        let Self { containers, writers, .. } = self;
        let Writers { list, orphans, .. } = writers;
        let Some((_, output)) = find(containers, orphans, serial).filter(|(_, o)| o.is_open() && !o.awaits_log) else {
            return;
        };
        if !output.recover.is_empty() && output.place.apart.is_none() {
            // The writer that died may hang in its pipe, and be waited for.
            output.place.apart = Some(serial);
        }
        let is_new = output.place.apart.is_none() && !list.contains_key(&output.place);
        if is_new && held::shared(list).count() >= WRITERS_MAX {
            output.place = held::shared(list).next_back().expect("there are many");
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

    /// Sends a writer what waits for it, as far as its socket takes it. What is left waits for room.
    fn send_orders(&mut self, place: Place) {
        self.send_waiting_orders(place);
        let Some(writer) = self.writers.list.get_mut(&place) else { return };
        let waits = !writer.last.is_empty() || !writer.queue.is_empty();
        if writer.awaits_room != waits {
            writer.awaits_room = waits;
            let number = writer.number;
            self.watch(number);
        }
    }

    fn send_waiting_orders(&mut self, place: Place) {
        let Self { containers, writers, .. } = self;
        let Writers { list, orphans, .. } = writers;
        let Some(writer) = list.get_mut(&place) else { return };
        while let Some(order) = writer.last.last() {
            match writer.line.send(order, &[]) {
                Ok(()) => drop(writer.last.pop()),
                Err(_) => return,
            }
        }
        while let Some(serial) = writer.queue.front().copied() {
            if let Some((id, output)) = find(containers, orphans, serial) {
                let mut refused = false;
                if let Some((order, files)) = output.next_order(serial, id) {
                    match writer.line.send(&order, &files) {
                        Ok(()) => {
                            output.sent(&order);
                            continue;
                        }
                        // It has no room, or is dead and about to be reaped.
                        Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => return,
                        Err(errno) => {
                            eprintln!("pinmon: output of container {id}: hand over to a log writer: {errno}");
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

    /// Clones a writer; `false`: there is none yet, which is tried again.
    fn start_writer(&mut self, place: Place) -> bool {
        let now = clock::monotonic();
        if self.writers.resting.get(&place).is_some_and(|until| *until > now) {
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
                self.rest_writer(place);
                false
            }
        }
    }

    fn rest_writer(&mut self, place: Place) {
        self.writers.resting.insert(place, clock::monotonic() + BACKOFF);
        self.timers.within(BACKOFF, Timer::Writers);
    }

    fn clone_writer(&mut self, place: Place) -> io::Result<Writer> {
        let (line, theirs) = Line::pair()?;
        let (busy, held, alarm) = (SharedWord::new()?, Held::new()?, Alarm::new()?);
        let journal = self.journals.next_name();
        let (number, monitor) = (self.next_serial(), getpid());
        let state = self.journals.state();
        let start = Start {
            line: theirs,
            state: state.as_fd(),
            journal: &journal,
            busy: &busy,
            held: &held,
            alarm: &alarm,
            is_apart: place.apart.is_some(),
            monitor,
        };
        let cloned = Clone3::default().fork(|| log_writer::run(start));
        self.terminals.cloned();
        let child = cloned?;
        Ok(Writer {
            number,
            pid: child.pid,
            pidfd: child.pidfd,
            line,
            journal,
            busy,
            held,
            held_by: None,
            alarm,
            started: clock::monotonic(),
            idle: None,
            queue: VecDeque::new(),
            last: Vec::new(),
            awaits_room: false,
        })
    }
}
