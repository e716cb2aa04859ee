//! A container's output: its streams, the log they go to, and who is attached.
//!
//! A part of a line stays in its FIFO, but never for long: the kernel does not wake a reader for a writer that finds a FIFO
//! neither empty nor with enough room, so whoever waited for the rest of the line might wait for ever. While a part is
//! there, the stream rests and is looked at again after [`REST_FIRST`], then twice as late each time; after [`RESTS`] looks
//! without a whole line it is written as it is (`P`).

use std::time::Duration;

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{FileType, OFlags},
};

use crate::{
    attach::Taps,
    epoll::Epoll,
    log::{
        pump::{Pass, Pump, Source},
        sink::Sink,
    },
    stream::StreamKind,
    token::Token,
};

/// First time until a part of a line is looked at again.
const REST_FIRST: Duration = Duration::from_millis(2);
/// So many looks: 126 ms in all.
const RESTS: u8 = 6;
/// Batches of one stream before others have their turn.
const PASSES: usize = 8;

/// One stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) kind: StreamKind,
    pub(crate) fd: OwnedFd,
    pub(crate) terminal: bool,
    pub(crate) ended: bool,
    /// Looks at a part of a line so far; `resting`: the next one is due by timer.
    pub(crate) looks: u8,
    pub(crate) resting: bool,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) streams: Vec<Stream>,
    pub(crate) sink: Sink,
    pub(crate) taps: Taps,
    pub(crate) line_max: usize,
}

/// What a round over the streams left.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Streams that rest, and for how long.
    pub(crate) rests: Vec<(StreamKind, Duration)>,
    /// There is more to move at once.
    pub(crate) more: bool,
}

impl Output {
    /// Adds a stream: non-blocking, a FIFO or a terminal's master side.
    pub(crate) fn add(&mut self, kind: StreamKind, fd: OwnedFd) -> std::io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        let terminal = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::Fifo;
        self.streams.push(Stream { kind, fd, terminal, ended: false, looks: 0, resting: false });
        Ok(())
    }

    /// The stream's end of this kind.
    pub(crate) fn stream(&self, kind: StreamKind) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.kind == kind)
    }

    /// The master side, where it is a terminal.
    pub(crate) fn terminal(&self) -> Option<&OwnedFd> {
        self.streams.iter().find(|stream| stream.terminal).map(|stream| &stream.fd)
    }

    /// Tells epoll of all streams.
    pub(crate) fn watch(&self, epoll: &Epoll, serial: u64) -> std::io::Result<()> {
        self.streams.iter().try_for_each(|stream| epoll.watch(&stream.fd, Token::Stream(serial, stream.kind)))
    }

    /// Closes streams and clients: all that was to come has come.
    pub(crate) fn close(&mut self, epoll: &Epoll) {
        for stream in self.streams.drain(..) {
            epoll.forget(&stream.fd);
        }
        self.taps.close(epoll);
    }

    /// Whether nothing will come any more.
    pub(crate) fn ended(&self) -> bool {
        self.streams.iter().all(|stream| stream.ended)
    }

    /// A resting stream is due.
    pub(crate) fn wake(&mut self, kind: StreamKind) {
        self.streams.iter_mut().filter(|stream| stream.kind == kind).for_each(|stream| stream.resting = false);
    }

    /// Moves what is there. `last`: the container ended, nothing rests any more; `flush`: parts of lines go too.
    pub(crate) fn round(&mut self, pump: &mut Pump, container: &str, last: bool, flush: bool) -> Round {
        let mut round = Round::default();
        let Self { streams, sink, taps, line_max } = self;
        for stream in streams.iter_mut().filter(|stream| !stream.ended || last) {
            for pass in 0..PASSES {
                if taps.rest() || (stream.resting && !last) {
                    break;
                }
                let flush = flush || stream.looks >= RESTS;
                let source = Source { container, kind: stream.kind, fd: stream.fd.as_fd(), line_max: *line_max, flush };
                let result =
                    if stream.terminal { pump.terminal(source, sink, taps) } else { pump.fifo(source, sink, taps) };
                match result {
                    Ok(Pass::Moved) => {
                        stream.looks = 0;
                        round.more |= pass + 1 == PASSES;
                        continue;
                    }
                    Ok(Pass::Starved) => stream.looks = 0,
                    Ok(Pass::Partial) => {
                        round.rests.push((stream.kind, REST_FIRST * (1 << stream.looks)));
                        stream.looks += 1;
                        stream.resting = true;
                    }
                    // A terminal whose other side is closed can be opened again as long as the container runs.
                    Ok(Pass::Ended) => stream.ended = !stream.terminal || last,
                    Err(error) => {
                        eprintln!("pinmon: output of {container}: {error}: given up");
                        stream.ended = true;
                    }
                }
                break;
            }
        }
        round
    }
}
