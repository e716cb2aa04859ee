//! Output of a container in its log writer: streams, log and attached clients.
//!
//! A partial line stays in its FIFO for a limited time. The kernel does not wake up a reader when a writer blocks
//! because a FIFO that is not empty has not enough room, so a reader that waited for the rest of the line could wait
//! forever. While there is a partial line, the stream pauses and is checked again after [`FIRST_REST`], with the
//! interval doubled each time. After [`ATTEMPTS_MAX`] checks without a whole line, the partial line is written (`P`).

use std::{io, time::Duration};

use rustix::fd::{AsFd, OwnedFd};

use super::order::{Add, EndPhase};
use crate::{
    event::{Epoll, POLL_INTERVAL, Token},
    log::{
        limit::SizeLimit,
        pipe_marker::{LeakyBucket, PipeCalls},
        pump::{PassOutcome, Pump, Source},
        sink::Sink,
        taps::Taps,
    },
    stream::StreamKind,
};

/// First interval of checking a partial line again.
const FIRST_REST: Duration = Duration::from_millis(2);
/// Maximum number of checks, 126 ms in total.
const ATTEMPTS_MAX: u8 = 6;

/// Maximum amount of data in the buffers of a terminal, whose fill level cannot be determined.
const TERMINAL_MAX: u64 = 128 * 1024;

/// An output stream.
#[derive(Debug)]
struct Stream {
    kind: StreamKind,
    fd: OwnedFd,
    terminal: bool,
    ended: bool,
    /// Whether it was empty after the final phase of the container's exit began.
    is_exhausted: bool,
    /// Whether it is in the queue of ready streams.
    queued: bool,
    /// Number of checks of a partial line so far; `resting`: the next one is due by timer.
    attempts: u8,
    resting: bool,
    /// Whether epoll refused to watch it.
    unwatched: bool,
    /// Number of bytes still to be moved in the final phase.
    remaining: u64,
}

/// Output of a container.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) container: String,
    streams: Vec<Stream>,
    pub(super) sink: Sink,
    pub(super) taps: Taps,
    pub(super) line_max: usize,
    pub(super) bucket: LeakyBucket,
    end: EndPhase,
}

/// When to continue a stream after a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// There may be more data; it waits for its next turn.
    Turn,
    /// After this time.
    Rest(Duration),
    /// When an event reports more data.
    Event,
}

impl Feed {
    /// Creates the feed of an order with its descriptors.
    pub(super) fn new(add: &Add, files: Vec<OwnedFd>) -> io::Result<Self> {
        let mut files = files.into_iter();
        let mut streams = Vec::with_capacity(add.streams.len());
        for (kind, terminal) in &add.streams {
            let fd = files.next().ok_or_else(|| io::Error::other("the descriptor of a stream is missing"))?;
            let (kind, terminal) = (*kind, *terminal);
            let (ended, is_exhausted, queued, attempts) = (false, false, false, 0);
            let (resting, unwatched) = (false, false);
            streams.push(Stream {
                kind,
                fd,
                terminal,
                ended,
                is_exhausted,
                queued,
                attempts,
                resting,
                unwatched,
                remaining: 0,
            });
        }
        let log = if add.log { files.next() } else { None };
        let (container, line_max) = (add.container.clone(), add.line_max);
        let limit = add.limit.clone().zip(files.next()).map(|(limit, directory)| SizeLimit { limit, directory });
        let sink = Sink::new(log, limit, add.loss.clone());
        Ok(Self {
            container,
            streams,
            sink,
            taps: Taps::default(),
            line_max,
            bucket: LeakyBucket::default(),
            end: add.end,
        })
    }

    /// Duplicates the descriptor of a stream, for recovery.
    pub(super) fn fifo(&self, kind: StreamKind) -> Option<OwnedFd> {
        self.streams.iter().find(|stream| stream.kind == kind)?.fd.try_clone().ok()
    }

    /// Adds all streams to an epoll instance. Those that it refuses are polled by a timer.
    pub(super) fn watch(&mut self, epoll: &Epoll, serial: u64) {
        for stream in &mut self.streams {
            if let Err(error) = epoll.watch(&stream.fd, Token::Stream(serial, stream.kind)) {
                let milliseconds = POLL_INTERVAL.as_millis();
                eprintln!(
                    "pinmon: watch output of container {}: {error}; polled every {milliseconds} ms",
                    self.container
                );
                stream.unwatched = true;
            }
        }
    }

    /// Removes streams and clients from the epoll instance. Closing them is not enough, because other processes have
    /// the same open files.
    pub(super) fn forget(&mut self, epoll: &Epoll) {
        for stream in &self.streams {
            epoll.forget(&stream.fd);
        }
        self.taps.close(epoll);
    }

    /// Records the phase of the container's exit. In the final phase, only the data that is available now is moved: a
    /// process that holds the other end may continue to write as long as it likes.
    pub(super) fn end(&mut self, end: EndPhase, calls: PipeCalls<'_>) {
        if end == EndPhase::Final && self.end < EndPhase::Final {
            for stream in &mut self.streams {
                let available = calls.during(|| rustix::io::ioctl_fionread(&stream.fd)).unwrap_or(0);
                stream.remaining = if stream.terminal { TERMINAL_MAX } else { available };
            }
        }
        self.end = self.end.max(end);
    }

    /// Closes terminals. The monitor still has them open, so this is not the last close.
    pub(super) fn close_terminals(&mut self) {
        self.streams.retain(|stream| !stream.terminal);
    }

    /// Closes all descriptors.
    pub(super) fn close(self, calls: PipeCalls<'_>) {
        let Self { streams, sink, taps, .. } = self;
        calls.during(|| drop(streams));
        drop((sink, taps));
    }

    /// Queues every stream that is not queued yet.
    pub(super) fn queue_all(&mut self, mut queue: impl FnMut(StreamKind)) {
        for stream in self.streams.iter_mut().filter(|stream| !stream.queued) {
            stream.queued = true;
            queue(stream.kind);
        }
    }

    /// Marks a stream as queued. Returns `false` if it was already.
    pub(super) fn queue(&mut self, kind: StreamKind) -> bool {
        let stream = self.streams.iter_mut().find(|stream| stream.kind == kind && !stream.queued);
        stream.map(|stream| stream.queued = true).is_some()
    }

    /// Ends the pause of a stream.
    pub(super) fn wake(&mut self, kind: StreamKind) {
        self.streams.iter_mut().filter(|stream| stream.kind == kind).for_each(|stream| stream.resting = false);
    }

    /// Whether all output was moved.
    pub(super) fn is_drained(&self) -> bool {
        let done = |stream: &Stream| stream.ended || (self.end == EndPhase::Final && stream.is_exhausted);
        self.end > EndPhase::Open && self.streams.iter().all(done) && !self.taps.is_backlogged()
    }

    /// Moves one batch of a stream.
    pub(super) fn turn(&mut self, pump: &mut Pump, kind: StreamKind, calls: PipeCalls<'_>) -> NextStep {
        let Self { container, streams, sink, taps, line_max, end, .. } = self;
        let Some(stream) = streams.iter_mut().find(|stream| stream.kind == kind) else { return NextStep::Event };
        stream.queued = false;
        let (has_ended, is_final) = (*end > EndPhase::Open, *end == EndPhase::Final);
        if (stream.ended && !has_ended) || taps.is_backlogged() || (stream.resting && !has_ended) {
            return NextStep::Event;
        }
        let flush = is_final || stream.attempts >= ATTEMPTS_MAX;
        let source = Source { container, kind, fd: stream.fd.as_fd(), calls, line_max: *line_max, flush };
        let result = if stream.terminal { pump.terminal(source, sink, taps) } else { pump.fifo(source, sink, taps) };
        match result {
            Ok(PassOutcome::Moved(length)) if is_final && stream.remaining <= length as u64 => {
                (stream.attempts, stream.remaining, stream.is_exhausted) = (0, 0, true);
            }
            Ok(PassOutcome::Moved(length)) => {
                stream.remaining = stream.remaining.saturating_sub(length as u64);
                stream.attempts = 0;
                stream.queued = true;
                return NextStep::Turn;
            }
            Ok(PassOutcome::Empty) => {
                stream.attempts = 0;
                stream.is_exhausted = is_final;
            }
            Ok(PassOutcome::Partial) => {
                let rest = FIRST_REST * (1 << stream.attempts);
                stream.attempts += 1;
                stream.resting = true;
                return NextStep::Rest(rest);
            }
            // A slave that was closed can be opened again while the container is running.
            Ok(PassOutcome::Ended) => stream.ended = !stream.terminal || has_ended,
            Err(error) => {
                eprintln!("pinmon: move output of container {container}: {error}; given up");
                stream.ended = true;
            }
        }
        if stream.unwatched && !stream.ended {
            stream.resting = true;
            return NextStep::Rest(POLL_INTERVAL);
        }
        NextStep::Event
    }
}
