//! A container's output in its writer: its streams, the log they go to, and who is attached.
//!
//! A part of a line stays in its FIFO, but never for long: the kernel does not wake a reader for a writer that finds a
//! FIFO neither empty nor with enough room, so a reader that waited for the rest of the line might wait forever. While
//! a part is there, the stream rests and is looked at again after [`REST_FIRST`], then twice as late each time; after
//! [`RESTS`] looks without a whole line it is written as it is (`P`).

use std::{io, time::Duration};

use rustix::fd::{AsFd, OwnedFd};

use super::order::{Add, End};
use crate::{
    attach::Taps,
    epoll::Epoll,
    log::{
        hold::{Debt, Hold},
        pump::{Pass, Pump, Source},
        sink::Sink,
    },
    stream::StreamKind,
    token::Token,
    unwatched::LOOK,
};

/// First time until a part of a line is looked at again.
const REST_FIRST: Duration = Duration::from_millis(2);
/// So many looks: 126 ms in all.
const RESTS: u8 = 6;

/// Most that a terminal may hold: its buffers, which cannot be asked how full they are.
const TERMINAL_MAX: u64 = 128 * 1024;

/// One stream.
#[derive(Debug)]
struct Stream {
    kind: StreamKind,
    fd: OwnedFd,
    terminal: bool,
    ended: bool,
    /// Nothing was left in it when the container's end was final.
    dry: bool,
    /// It waits for its turn.
    queued: bool,
    /// Looks at a part of a line so far; `resting`: the next one is due by timer.
    looks: u8,
    resting: bool,
    /// No event reports what comes.
    unwatched: bool,
    /// Bytes that are still to be moved, from the container's final end on.
    left: u64,
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) container: String,
    streams: Vec<Stream>,
    pub(super) sink: Sink,
    pub(super) taps: Taps,
    pub(super) line_max: usize,
    pub(super) debt: Debt,
    end: End,
}

/// What to do with a stream after a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// There may be more: it waits for its next turn.
    Turn,
    /// It is looked at again after so long.
    Rest(Duration),
    /// An event reports more.
    Event,
}

impl Feed {
    /// From a message and its descriptors.
    pub(super) fn new(add: &Add, files: Vec<OwnedFd>) -> io::Result<Self> {
        let mut files = files.into_iter();
        let mut streams = Vec::with_capacity(add.streams.len());
        for (kind, terminal) in &add.streams {
            let fd = files.next().ok_or_else(|| io::Error::other("a stream's descriptor is missing"))?;
            let (kind, terminal) = (*kind, *terminal);
            let (ended, dry, queued, looks) = (false, false, false, 0);
            let (resting, unwatched) = (false, false);
            streams.push(Stream { kind, fd, terminal, ended, dry, queued, looks, resting, unwatched, left: 0 });
        }
        let log = if add.log { files.next() } else { None };
        let (container, line_max) = (add.container.clone(), add.line_max);
        let sink = Sink::new(log, add.loss.clone());
        Ok(Self { container, streams, sink, taps: Taps::default(), line_max, debt: Debt::default(), end: add.end })
    }

    /// A duplicate of a stream's end, for recovery.
    pub(super) fn fifo(&self, kind: StreamKind) -> Option<OwnedFd> {
        self.streams.iter().find(|stream| stream.kind == kind)?.fd.try_clone().ok()
    }

    /// Adds all streams to an epoll instance.
    /// Those that it refuses are looked at by timer.
    pub(super) fn watch(&mut self, epoll: &Epoll, serial: u64) {
        for stream in &mut self.streams {
            if let Err(error) = epoll.watch(&stream.fd, Token::Stream(serial, stream.kind)) {
                let milliseconds = LOOK.as_millis();
                eprintln!("pinmon: output of {}: watch: {error}: looked at every {milliseconds} ms", self.container);
                stream.unwatched = true;
            }
        }
    }

    /// Removes streams and clients from it: other processes hold the same open files, so closing them is not enough.
    pub(super) fn forget(&mut self, epoll: &Epoll) {
        for stream in &self.streams {
            epoll.forget(&stream.fd);
        }
        self.taps.close(epoll);
    }

    /// The container's end came nearer. What is there when it is final is all: a process that holds the other end may
    /// write on as long as it likes.
    pub(super) fn end(&mut self, end: End, hold: Hold<'_>) {
        if end == End::Final && self.end < End::Final {
            for stream in &mut self.streams {
                let there = hold.within(|| rustix::io::ioctl_fionread(&stream.fd)).unwrap_or(0);
                stream.left = if stream.terminal { TERMINAL_MAX } else { there };
            }
        }
        self.end = self.end.max(end);
    }

    /// Closes terminals: the monitor has them closed, and is not the last.
    pub(super) fn close_terminals(&mut self) {
        self.streams.retain(|stream| !stream.terminal);
    }

    /// Closes all.
    pub(super) fn close(self, hold: Hold<'_>) {
        let Self { streams, sink, taps, .. } = self;
        hold.within(|| drop(streams));
        drop((sink, taps));
    }

    /// Gives every stream that does not wait for its turn yet a turn.
    pub(super) fn queue_all(&mut self, mut queue: impl FnMut(StreamKind)) {
        for stream in self.streams.iter_mut().filter(|stream| !stream.queued) {
            stream.queued = true;
            queue(stream.kind);
        }
    }

    /// Whether this stream is to wait for its turn; not if it does already.
    pub(super) fn queue(&mut self, kind: StreamKind) -> bool {
        let stream = self.streams.iter_mut().find(|stream| stream.kind == kind && !stream.queued);
        stream.map(|stream| stream.queued = true).is_some()
    }

    /// A resting stream is due.
    pub(super) fn wake(&mut self, kind: StreamKind) {
        self.streams.iter_mut().filter(|stream| stream.kind == kind).for_each(|stream| stream.resting = false);
    }

    /// Whether all output is where it belongs.
    pub(super) fn is_drained(&self) -> bool {
        let done = |stream: &Stream| stream.ended || (self.end == End::Final && stream.dry);
        self.end > End::Open && self.streams.iter().all(done) && !self.taps.rest()
    }

    /// Moves one batch of a stream whose turn it is.
    pub(super) fn turn(&mut self, pump: &mut Pump, kind: StreamKind, hold: Hold<'_>) -> Next {
        let Self { container, streams, sink, taps, line_max, end, .. } = self;
        let Some(stream) = streams.iter_mut().find(|stream| stream.kind == kind) else { return Next::Event };
        stream.queued = false;
        let (last, finale) = (*end > End::Open, *end == End::Final);
        if (stream.ended && !last) || taps.rest() || (stream.resting && !last) {
            return Next::Event;
        }
        let flush = finale || stream.looks >= RESTS;
        let source = Source { container, kind, fd: stream.fd.as_fd(), hold, line_max: *line_max, flush };
        let result = if stream.terminal { pump.terminal(source, sink, taps) } else { pump.fifo(source, sink, taps) };
        match result {
            Ok(Pass::Moved(length)) if finale && stream.left <= length as u64 => {
                (stream.looks, stream.left, stream.dry) = (0, 0, true);
            }
            Ok(Pass::Moved(length)) => {
                stream.left = stream.left.saturating_sub(length as u64);
                stream.looks = 0;
                stream.queued = true;
                return Next::Turn;
            }
            Ok(Pass::Starved) => {
                stream.looks = 0;
                stream.dry = finale;
            }
            Ok(Pass::Partial) => {
                let rest = REST_FIRST * (1 << stream.looks);
                stream.looks += 1;
                stream.resting = true;
                return Next::Rest(rest);
            }
            // A terminal whose other side is closed can be opened again as long as the container runs.
            Ok(Pass::Ended) => stream.ended = !stream.terminal || last,
            Err(error) => {
                eprintln!("pinmon: output of {container}: {error}: given up");
                stream.ended = true;
            }
        }
        if stream.unwatched && !stream.ended {
            stream.resting = true;
            return Next::Rest(LOOK);
        }
        Next::Event
    }
}
