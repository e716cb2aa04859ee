//! Event loop of a log writer. It handles orders first, then some batches, round-robin over all ready streams.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    time::Duration,
};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{Mode, OFlags, openat},
};
use syscall::shared_word::SharedWord;

use super::{
    alarm::AlarmControl,
    channel::{Channel, Incoming},
    feed::{Feed, NextStep},
    order::{Add, Order, Report},
};
use crate::{
    clock,
    event::{Epoll, EpollEvent, POLL_INTERVAL, Timer, Timers, Token},
    log::{
        journal::Journal,
        pipe_marker::{PipeCalls, PipeMarker},
        pump::Pump,
        recover::recover,
    },
    stream::StreamKind,
};

/// Maximum number of batches until events are handled again.
const TURNS: usize = 8;
/// Time that this process keeps its copies after the monitor closed its own. A clone of the monitor that has not closed
/// its inherited descriptors yet must not perform the last close of a pipe.
const GRACE: Duration = Duration::from_millis(100);

/// State of a log writer.
pub(super) struct LogWriter<'a> {
    pub(super) epoll: Epoll,
    pub(super) channel: Channel,
    pub(super) pump: Pump,
    /// Directory of the journals.
    pub(super) state: OwnedFd,
    /// Start of the current step, in nanoseconds of [`clock::monotonic`]; 0: none.
    pub(super) busy: &'a SharedWord,
    /// Marks whose pipe is being accessed.
    pub(super) pipe_marker: &'a PipeMarker,
    /// Whether it is dedicated to containers that block log writers.
    pub(super) is_dedicated: bool,
    pub(super) alarm: AlarmControl<'a>,
    pub(super) timers: Timers,
    /// Outputs that are being moved, by serial number.
    pub(super) feeds: BTreeMap<u64, Feed>,
    /// Outputs that are complete, by serial number. They are closed [`GRACE`] after the monitor closed its own
    /// descriptors.
    pub(super) drained: BTreeMap<u64, Feed>,
    /// Queue of streams that may have data.
    pub(super) ready: VecDeque<(u64, StreamKind)>,
}

impl LogWriter<'_> {
    /// Serves until the monitor closes its end.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let watched = self.epoll.watch(&self.channel, Token::Link).is_ok();
        loop {
            let idle = if watched {
                self.timers.next()
            } else {
                Some(self.timers.next().map_or(POLL_INTERVAL, |at| at.min(POLL_INTERVAL)))
            };
            let timeout = if self.ready.is_empty() { idle } else { Some(Duration::ZERO) };
            if self.ready.is_empty() {
                self.alarm.stop();
            }
            let events = self.epoll.wait(timeout)?;
            // Orders come first, so that a client that was attached before its container wrote receives what it wrote.
            if (!watched || events.iter().any(|event| event.token == Token::Link)) && !self.handle_orders()? {
                return Ok(());
            }
            for event in events {
                self.dispatch(event)?;
            }
            while let Some(timer) = self.timers.due() {
                self.timer_due(timer)?;
            }
            for _ in 0..TURNS {
                let Some((serial, kind)) = self.ready.pop_front() else { break };
                self.turn(serial, kind)?;
            }
        }
    }

    fn report(&self, report: &Report) -> io::Result<()> {
        Ok(self.channel.send_waiting(report)?)
    }

    /// Performs a step that accesses files, which may hang: marks its start, and sets the alarm.
    fn busy<T>(&mut self, step: impl FnOnce(&mut Self) -> T) -> T {
        let now = clock::monotonic();
        self.alarm.begin(now);
        self.busy.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX).max(1));
        let result = step(self);
        self.busy.store(0);
        result
    }

    /// Handles all pending orders. Returns `false` if the monitor closed its end.
    fn handle_orders(&mut self) -> io::Result<bool> {
        loop {
            match self.channel.receive::<Order>()? {
                Incoming::Message(order, files) => self.busy(|writer| writer.handle_order(order, files))?,
                Incoming::Nothing => return Ok(true),
                Incoming::Closed => return Ok(false),
            }
        }
    }

    fn handle_order(&mut self, order: Order, files: Vec<OwnedFd>) -> io::Result<()> {
        match order {
            Order::Add(add) => self.add(&add, files),
            Order::Reopen { serial } => {
                let mut files = files.into_iter();
                if let (Some(feed), Some(file)) = (self.feeds.get_mut(&serial), files.next()) {
                    feed.sink.reopen(file, files.next());
                }
                self.report(&Report::Reopened { serial })
            }
            Order::Tap { serial, number, kind } => {
                if let (Some(feed), Some(pipe)) = (self.feeds.get_mut(&serial), files.into_iter().next()) {
                    if let Err(error) = self.epoll.watch_room(&pipe, Token::Tap(serial, number)) {
                        eprintln!(
                            "pinmon: attach to container {}: watch the client: {error}; the client is disconnected",
                            feed.container
                        );
                        return self.report(&Report::TapClosed { serial, number });
                    }
                    feed.taps.add(number, kind, pipe);
                }
                // The client must also receive a partial line that is waiting.
                self.queue_all_streams(serial, true);
                Ok(())
            }
            Order::End { serial, end } => {
                if let Some(feed) = self.feeds.get_mut(&serial) {
                    feed.end(end, PipeCalls::of(self.pipe_marker, serial));
                }
                self.queue_all_streams(serial, false);
                self.send_reports(serial)
            }
            Order::Close { serial } => {
                if let Some(feed) = self.feeds.remove(&serial) {
                    self.retire(serial, feed);
                }
                self.timers.after(GRACE, Timer::Close(serial));
                Ok(())
            }
            Order::Forget { serial } => {
                // It was complete, and about to be closed.
                if let Some(feed) = self.drained.remove(&serial) {
                    feed.close(PipeCalls::of(self.pipe_marker, serial));
                    return Ok(());
                }
                let Some(mut feed) = self.feeds.remove(&serial) else { return Ok(()) };
                feed.forget(&self.epoll);
                feed.close(PipeCalls::of(self.pipe_marker, serial));
                // The monitor keeps terminals open until then, so that this process does not perform their last close.
                self.report(&Report::Drained { serial })
            }
        }
    }

    /// Stops moving an output. Its pipes and log stay open.
    fn retire(&mut self, serial: u64, mut feed: Feed) {
        feed.forget(&self.epoll);
        feed.close_terminals();
        self.drained.insert(serial, feed);
    }

    fn add(&mut self, add: &Add, files: Vec<OwnedFd>) -> io::Result<()> {
        let serial = add.serial;
        let mut feed = Feed::new(add, files)?;
        if !add.recover.is_empty() {
            let mut failed = false;
            for name in &add.recover {
                if let Err(error) = self.recover(name, &mut feed, serial) {
                    eprintln!("pinmon: recover the output of container {}: {name}: {error}", feed.container);
                    failed = true;
                }
            }
            self.report(&Report::Recovered { serial, failed })?;
        }
        feed.watch(&self.epoll, serial);
        if let Some(mut previous) = self.feeds.insert(serial, feed) {
            previous.forget(&self.epoll);
            previous.close(PipeCalls::of(self.pipe_marker, serial));
        }
        self.queue_all_streams(serial, false);
        self.send_reports(serial)
    }

    /// Recovers the batch of a log writer that was killed. Waits until that writer has exited, which may be waiting for
    /// its file system.
    fn recover(&self, name: &str, feed: &mut Feed, serial: u64) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut journal = Journal::map_when_free(openat(&self.state, name, flags, Mode::empty())?)?;
        let Some((_, entry)) = journal.pending()? else { return Ok(()) };
        if entry.container != feed.container {
            return Ok(());
        }
        let fifo = feed.fifo(entry.stream);
        let fifo = fifo.as_ref().map(|fifo| (fifo.as_fd(), PipeCalls::of(self.pipe_marker, serial)));
        recover(&mut journal, fifo, &mut feed.sink, feed.line_max)
    }

    fn queue_all_streams(&mut self, serial: u64, wake: bool) {
        let Some(feed) = self.feeds.get_mut(&serial) else { return };
        if wake {
            [StreamKind::Stdout, StreamKind::Stderr].into_iter().for_each(|kind| feed.wake(kind));
        }
        feed.queue_all(|kind| self.ready.push_back((serial, kind)));
    }

    fn dispatch(&mut self, event: EpollEvent) -> io::Result<()> {
        match event.token {
            Token::Stream(serial, kind) => self.stream_ready(serial, kind),
            Token::Tap(serial, number) => {
                let Some(feed) = self.feeds.get_mut(&serial) else { return Ok(()) };
                let was_backlogged = feed.taps.is_backlogged();
                feed.taps.ready(number, event.broken);
                if was_backlogged && !feed.taps.is_backlogged() {
                    self.queue_all_streams(serial, false);
                }
                return self.send_reports(serial);
            }
            _ => {}
        }
        Ok(())
    }

    fn stream_ready(&mut self, serial: u64, kind: StreamKind) {
        if self.feeds.get_mut(&serial).is_some_and(|feed| feed.queue(kind)) {
            self.ready.push_back((serial, kind));
        }
    }

    fn timer_due(&mut self, timer: Timer) -> io::Result<()> {
        match timer {
            Timer::Rest(serial, word) => {
                if let (Some(feed), Some(kind)) = (self.feeds.get_mut(&serial), StreamKind::from_word(word)) {
                    feed.wake(kind);
                    self.stream_ready(serial, kind);
                }
            }
            Timer::Taps(serial) => {
                let Some(feed) = self.feeds.get_mut(&serial) else { return Ok(()) };
                feed.taps.expire(clock::monotonic());
                if !feed.taps.is_backlogged() {
                    self.queue_all_streams(serial, false);
                }
                return self.send_reports(serial);
            }
            Timer::Close(serial) => {
                if let Some(feed) = self.drained.remove(&serial) {
                    let calls = PipeCalls::of(self.pipe_marker, serial);
                    self.busy(|_| feed.close(calls));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn turn(&mut self, serial: u64, kind: StreamKind) -> io::Result<()> {
        let calls = PipeCalls::of(self.pipe_marker, serial);
        let next =
            self.busy(|writer| writer.feeds.get_mut(&serial).map(|feed| feed.turn(&mut writer.pump, kind, calls)));
        match next {
            None => return Ok(()),
            Some(NextStep::Turn) => self.ready.push_back((serial, kind)),
            Some(NextStep::Rest(rest)) => self.timers.after(rest, Timer::Rest(serial, kind.word())),
            Some(NextStep::Event) => {}
        }
        self.send_reports(serial)?;
        self.account(serial)
    }

    /// Accounts for the time that a container blocked this process. If it is too much, the output is returned to the
    /// monitor between two batches.
    fn account(&mut self, serial: u64) -> io::Result<()> {
        let long = self.pipe_marker.take_long();
        if self.is_dedicated || long.is_zero() {
            return Ok(());
        }
        let overflows = |feed: &mut Feed| feed.bucket.add(long, clock::monotonic()) && !feed.taps.is_backlogged();
        if self.feeds.get_mut(&serial).is_some_and(overflows)
            && let Some(feed) = self.feeds.remove(&serial)
        {
            self.retire(serial, feed);
            self.report(&Report::Held { serial })?;
        }
        Ok(())
    }

    /// Sends the reports that a step caused.
    fn send_reports(&mut self, serial: u64) -> io::Result<()> {
        let Some(feed) = self.feeds.get_mut(&serial) else { return Ok(()) };
        if let Some(until) = feed.taps.deadline() {
            self.timers.at(until, Timer::Taps(serial));
        }
        let (gone, lost, drained) = (feed.taps.take_gone(), feed.sink.take_loss(), feed.is_drained());
        for number in gone {
            self.report(&Report::TapClosed { serial, number })?;
        }
        if let Some((loss, message)) = lost {
            self.report(&Report::Lost { serial, loss, message })?;
        }
        if drained && let Some(feed) = self.feeds.remove(&serial) {
            self.retire(serial, feed);
            self.report(&Report::Drained { serial })?;
        }
        Ok(())
    }
}
