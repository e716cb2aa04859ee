//! Orders to log writers, and their start.

use std::{collections::VecDeque, io, os::fd::AsFd, time::Duration};

use rustix::{io::Errno, process::getpid};
use syscall::{clone::Clone3, shared_word::SharedWord};

use super::{
    Outputs, blocked,
    streams::Place,
    writer::{Writer, name},
};
use crate::{
    clock,
    event::{Timer, Token},
    log::pipe_marker::PipeMarker,
    log_writer::{self, Start, alarm::Alarm, channel::Channel},
    services::Services,
};

/// Maximum number of file systems with a log writer. Logs on further ones share one of these writers.
const WRITERS_MAX: usize = 64;
/// Time until a log writer that failed is started again.
pub(super) const BACKOFF: Duration = Duration::from_secs(1);

impl Outputs {
    /// Sends the pending orders of an output to its log writer. Starts the log writer if necessary.
    pub(crate) fn hand_over(&mut self, serial: u64, services: &mut Services) {
        let Self { map, writers, .. } = self;
        let Some(output) = map.get_mut(serial).filter(|output| output.is_open() && !output.awaits_log) else { return };
        if !output.recover.is_empty() && output.place.dedicated.is_none() {
            // The log writer that died may hang in a pipe of this container, and recovery waits for it.
            output.place.dedicated = Some(serial);
        }
        let is_new = output.place.dedicated.is_none() && !writers.list.contains_key(&output.place);
        if is_new && blocked::shared(&writers.list).count() >= WRITERS_MAX {
            output.place = blocked::shared(&writers.list).next_back().expect("WRITERS_MAX is not zero");
        }
        let place = output.place;
        if !self.writers.list.contains_key(&place) && !self.start_writer(place, services) {
            return;
        }
        if let (Some(output), Some(writer)) = (self.map.get_mut(serial), self.writers.list.get_mut(&place))
            && !output.queued
        {
            output.queued = true;
            writer.queue.push_back(serial);
        }
        self.send_orders(place, services);
    }

    /// Sends pending orders to a log writer until its socket has no more room.
    pub(crate) fn send_orders(&mut self, place: Place, services: &mut Services) {
        self.send_waiting_orders(place, services);
        let Some(writer) = self.writers.list.get_mut(&place) else { return };
        let needs_room = !writer.final_orders.is_empty() || !writer.queue.is_empty();
        if writer.awaits_room != needs_room {
            writer.awaits_room = needs_room;
            let number = writer.number;
            self.watch(number, services);
        }
    }

    fn send_waiting_orders(&mut self, place: Place, services: &mut Services) {
        let Self { map, writers, .. } = self;
        let Some(writer) = writers.list.get_mut(&place) else { return };
        while let Some(order) = writer.final_orders.last() {
            match writer.channel.send(order, &[]) {
                Ok(()) => drop(writer.final_orders.pop()),
                Err(_) => return,
            }
        }
        while let Some(serial) = writer.queue.front().copied() {
            if let Some(output) = map.get_mut(serial) {
                let mut refused = false;
                if let Some((order, files)) = output.next_order(serial) {
                    match writer.channel.send(&order, &files) {
                        Ok(()) => {
                            output.sent(&order);
                            continue;
                        }
                        // It has no room, or is dead and about to be reaped.
                        Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => return,
                        Err(errno) => {
                            let id = &output.container;
                            eprintln!("pinmon: send output of container {id} to a log writer: {errno}");
                            refused = true;
                        }
                    }
                }
                output.queued = false;
                if refused {
                    services.timers.within(BACKOFF, Timer::Writers);
                }
            }
            writer.queue.pop_front();
        }
    }

    /// Starts a log writer. Returns `false` if that failed and is retried later.
    fn start_writer(&mut self, place: Place, services: &mut Services) -> bool {
        let now = clock::monotonic();
        if self.writers.backoff_until.get(&place).is_some_and(|until| *until > now) {
            return false;
        }
        match self.clone_writer(place, services) {
            Ok(writer) => {
                let number = writer.number;
                self.writers.list.insert(place, writer);
                self.watch(number, services);
                true
            }
            Err(error) => {
                eprintln!("pinmon: start the log writer of {}: {error}", name(place));
                self.back_off(place, services);
                false
            }
        }
    }

    pub(super) fn back_off(&mut self, place: Place, services: &mut Services) {
        self.writers.backoff_until.insert(place, clock::monotonic() + BACKOFF);
        services.timers.within(BACKOFF, Timer::Writers);
    }

    fn watch(&self, number: u64, services: &mut Services) {
        services.poll_unless_watched(Token::Writer(number), self.try_watch(number, &services.epoll));
    }

    fn clone_writer(&mut self, place: Place, services: &mut Services) -> io::Result<Writer> {
        let (channel, peer) = Channel::pair()?;
        let (busy, pipe_marker, alarm) = (SharedWord::new()?, PipeMarker::new()?, Alarm::new()?);
        let journal = self.journals.next_name();
        let (number, monitor) = (services.next_serial(), getpid());
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
        services.closers.cloned();
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
