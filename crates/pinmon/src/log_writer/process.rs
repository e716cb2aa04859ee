//! A log writer's event loop: orders first, then a few batches, one of each stream that is ready in turn.

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
    alarm::Setting,
    feed::{Feed, Next},
    line::{Line, Received},
    order::{Add, Order, Report},
};
use crate::{
    clock,
    epoll::{Epoll, Happened},
    log::{
        hold::{Held, Hold},
        journal::Journal,
        pump::Pump,
        recover::recover,
    },
    stream::StreamKind,
    timer::{Timer, Timers},
    token::Token,
    unwatched::LOOK,
};

/// Batches, each of another stream where more than one is ready, until events are looked at again.
const TURNS: usize = 8;
/// How long this process keeps its copies after the monitor closed its own: a clone of the monitor that has not closed
/// what it inherited yet must not be the last one to close a pipe.
const GRACE: Duration = Duration::from_millis(100);

/// See the head of this file.
pub(super) struct LogWriter<'a> {
    pub(super) epoll: Epoll,
    pub(super) line: Line,
    pub(super) pump: Pump,
    /// Directory of the journals.
    pub(super) state: OwnedFd,
    /// Since when it has waited for a file, nanoseconds of [`clock::monotonic`]; 0: it does not.
    pub(super) busy: &'a SharedWord,
    /// Whose pipe it is in, by serial; 0: nobody's.
    pub(super) held: &'a Held,
    /// It moves the output of containers that hold up writers.
    pub(super) is_apart: bool,
    pub(super) alarm: Setting<'a>,
    pub(super) timers: Timers,
    /// By serial number.
    pub(super) feeds: BTreeMap<u64, Feed>,
    /// Outputs that are at their end here, by serial: closed [`GRACE`] after the monitor has closed its own
    /// descriptors.
    pub(super) drained: BTreeMap<u64, Feed>,
    /// Streams that may have more, each once.
    pub(super) ready: VecDeque<(u64, StreamKind)>,
}

impl LogWriter<'_> {
    /// Serves until the monitor closes its end.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let watched = self.epoll.watch(&self.line, Token::Link).is_ok();
        loop {
            let idle =
                if watched { self.timers.next() } else { Some(self.timers.next().map_or(LOOK, |at| at.min(LOOK))) };
            let most = if self.ready.is_empty() { idle } else { Some(Duration::ZERO) };
            if self.ready.is_empty() {
                self.alarm.stop();
            }
            let happened = self.epoll.wait(most)?;
            // A client that was attached before its container wrote gets what it wrote.
            if (!watched || happened.iter().any(|one| one.token == Token::Link)) && !self.orders()? {
                return Ok(());
            }
            for one in happened {
                self.happened(one)?;
            }
            while let Some(timer) = self.timers.due() {
                self.due(timer)?;
            }
            for _ in 0..TURNS {
                let Some((serial, kind)) = self.ready.pop_front() else { break };
                self.turn(serial, kind)?;
            }
        }
    }

    fn report(&self, report: &Report) -> io::Result<()> {
        Ok(self.line.send_waiting(report)?)
    }

    /// Marks the time in which files are touched, which may be long.
    fn busy<T>(&mut self, step: impl FnOnce(&mut Self) -> T) -> T {
        let now = clock::monotonic();
        self.alarm.begin(now);
        self.busy.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX).max(1));
        let result = step(self);
        self.busy.store(0);
        result
    }

    /// Takes all orders there are; `false`: the monitor closed its end.
    fn orders(&mut self) -> io::Result<bool> {
        loop {
            match self.line.receive::<Order>()? {
                Received::Message(order, files) => self.busy(|writer| writer.obey(order, files))?,
                Received::Nothing => return Ok(true),
                Received::Closed => return Ok(false),
            }
        }
    }

    fn obey(&mut self, order: Order, files: Vec<OwnedFd>) -> io::Result<()> {
        match order {
            Order::Add(add) => self.add(&add, files),
            Order::Reopen { serial } => {
                if let (Some(feed), Some(file)) = (self.feeds.get_mut(&serial), files.into_iter().next()) {
                    feed.sink.reopen(file);
                }
                self.report(&Report::Reopened { serial })
            }
            Order::Tap { serial, number, kind } => {
                if let (Some(feed), Some(pipe)) = (self.feeds.get_mut(&serial), files.into_iter().next()) {
                    if let Err(error) = self.epoll.watch_room(&pipe, Token::Tap(serial, number)) {
                        eprintln!("pinmon: attach to container {}: watch the client: {error}: closed", feed.container);
                        return self.report(&Report::TapClosed { serial, number });
                    }
                    feed.taps.add(number, kind, pipe);
                }
                // A part of a line that waits for its end is for this client too.
                self.turns_for_all(serial, true);
                Ok(())
            }
            Order::End { serial, end } => {
                if let Some(feed) = self.feeds.get_mut(&serial) {
                    feed.end(end, Hold::of(self.held, serial));
                }
                self.turns_for_all(serial, false);
                self.settle(serial)
            }
            Order::Close { serial } => {
                if let Some(feed) = self.feeds.remove(&serial) {
                    self.retire(serial, feed);
                }
                self.timers.after(GRACE, Timer::Close(serial));
                Ok(())
            }
            Order::Forget { serial } => {
                // It was about to be closed.
                if let Some(feed) = self.drained.remove(&serial) {
                    feed.close(Hold::of(self.held, serial));
                    return Ok(());
                }
                let Some(mut feed) = self.feeds.remove(&serial) else { return Ok(()) };
                feed.forget(&self.epoll);
                feed.close(Hold::of(self.held, serial));
                // The monitor keeps terminals until then, so that this process is not the last to close them.
                self.report(&Report::Drained { serial })
            }
        }
    }

    /// Nothing comes of it any more; its pipes and log stay open.
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
        if let Some(mut before) = self.feeds.insert(serial, feed) {
            before.forget(&self.epoll);
            before.close(Hold::of(self.held, serial));
        }
        self.turns_for_all(serial, false);
        self.settle(serial)
    }

    /// Brings home what was on its way when a writer was killed: it may still wait for its file system, and is waited
    /// for.
    fn recover(&self, name: &str, feed: &mut Feed, serial: u64) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut journal = Journal::map_when_free(openat(&self.state, name, flags, Mode::empty())?)?;
        let Some((_, entry)) = journal.pending()? else { return Ok(()) };
        if entry.container != feed.container {
            return Ok(());
        }
        let fifo = feed.fifo(entry.stream);
        let fifo = fifo.as_ref().map(|fifo| (fifo.as_fd(), Hold::of(self.held, serial)));
        recover(&mut journal, fifo, &mut feed.sink, feed.line_max)
    }

    fn turns_for_all(&mut self, serial: u64, wake: bool) {
        let Some(feed) = self.feeds.get_mut(&serial) else { return };
        if wake {
            [StreamKind::Stdout, StreamKind::Stderr].into_iter().for_each(|kind| feed.wake(kind));
        }
        feed.queue_all(|kind| self.ready.push_back((serial, kind)));
    }

    fn happened(&mut self, happened: Happened) -> io::Result<()> {
        match happened.token {
            Token::Stream(serial, kind) => self.stream_ready(serial, kind),
            Token::Tap(serial, number) => {
                let Some(feed) = self.feeds.get_mut(&serial) else { return Ok(()) };
                let rested = feed.taps.rest();
                feed.taps.ready(number, happened.broken);
                if rested && !feed.taps.rest() {
                    self.turns_for_all(serial, false);
                }
                return self.settle(serial);
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

    fn due(&mut self, timer: Timer) -> io::Result<()> {
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
                if !feed.taps.rest() {
                    self.turns_for_all(serial, false);
                }
                return self.settle(serial);
            }
            Timer::Close(serial) => {
                if let Some(feed) = self.drained.remove(&serial) {
                    let hold = Hold::of(self.held, serial);
                    self.busy(|_| feed.close(hold));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn turn(&mut self, serial: u64, kind: StreamKind) -> io::Result<()> {
        let hold = Hold::of(self.held, serial);
        let next =
            self.busy(|writer| writer.feeds.get_mut(&serial).map(|feed| feed.turn(&mut writer.pump, kind, hold)));
        match next {
            None => return Ok(()),
            Some(Next::Turn) => self.ready.push_back((serial, kind)),
            Some(Next::Rest(rest)) => self.timers.after(rest, Timer::Rest(serial, kind.word())),
            Some(Next::Event) => {}
        }
        self.settle(serial)?;
        self.account(serial)
    }

    /// A container that held this process up for too long, all in all, is given back to the monitor, between two
    /// batches.
    fn account(&mut self, serial: u64) -> io::Result<()> {
        let long = self.held.take_long();
        if self.is_apart || long.is_zero() {
            return Ok(());
        }
        let too_much = |feed: &mut Feed| feed.debt.add(long, clock::monotonic()) && !feed.taps.rest();
        if self.feeds.get_mut(&serial).is_some_and(too_much)
            && let Some(feed) = self.feeds.remove(&serial)
        {
            self.retire(serial, feed);
            self.report(&Report::Held { serial })?;
        }
        Ok(())
    }

    /// Reports what a step brought about.
    fn settle(&mut self, serial: u64) -> io::Result<()> {
        let Some(feed) = self.feeds.get_mut(&serial) else { return Ok(()) };
        if let Some(until) = feed.taps.deadline() {
            self.timers.at(until, Timer::Taps(serial));
        }
        let (gone, lost, drained) = (feed.taps.take_gone(), feed.sink.take_news(), feed.is_drained());
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
