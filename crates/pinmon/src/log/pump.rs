//! Moves batches of output, one at a time, by the protocol drawn in `log.rs`.

use std::io;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsRawFd, BorrowedFd, OwnedFd},
    fs::{Mode, OFlags},
    io::Errno,
    pipe::{PipeFlags, SpliceFlags},
};

use super::{
    format::{Piece, cut},
    hold::Hold,
    journal::{BATCH, Entry, Journal, TERMINAL_CHUNK},
    sink::Sink,
};
use crate::{attach::Taps, stream::StreamKind};

/// One stream of a container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) container: &'a str,
    pub(crate) kind: StreamKind,
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) hold: Hold<'a>,
    /// Longest piece of a line.
    pub(crate) line_max: usize,
    /// Whether what is no whole line yet goes too.
    pub(crate) flush: bool,
}

/// What a pass did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// A batch of so many bytes moved; there may be more.
    Moved(usize),
    /// Nothing to move now.
    Starved,
    /// Only a part of a line is there.
    Partial,
    /// Nothing will come any more.
    Ended,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Pump {
    journal: Journal,
    scratch: (OwnedFd, OwnedFd),
    pieces: Vec<Piece>,
}

impl Pump {
    /// With a journal that is idle.
    pub(crate) fn new(journal: Journal) -> io::Result<Self> {
        let scratch = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { journal, scratch, pieces: Vec::new() })
    }

    /// Moves one batch from a FIFO to the log and to those attached.
    pub(crate) fn fifo(&mut self, source: Source<'_>, sink: &mut Sink, taps: &mut Taps) -> io::Result<Pass> {
        let flush = source.flush || !taps.is_empty() || sink.file().is_none();
        let mut seen = 0;
        let used = loop {
            let there = match source.hold.within(|| self.peek(source.fd))? {
                Peek::Bytes(n) => n,
                Peek::Empty => return Ok(Pass::Starved),
                Peek::End => return Ok(Pass::Ended),
            };
            let used = cut(&self.journal.data()[..there], source.line_max, flush, &mut self.pieces);
            if used > 0 {
                break used;
            }
            match source.hold.within(|| rest_of_line(source.fd, there, seen))? {
                Rest::Waits => return Ok(Pass::Partial),
                Rest::Grew => seen = there,
                Rest::Due => break cut(&self.journal.data()[..there], source.line_max, true, &mut self.pieces),
            }
        };
        let log = sink.position();
        self.journal.prepare(&Entry { container: source.container.to_owned(), stream: source.kind, log, length: used });
        sink.write((log, source.kind), self.journal.data(), &self.pieces);
        self.journal.written();
        taps.feed(source.kind, &self.journal.data()[..used]);
        source.hold.within(|| consume(&mut self.journal, source.fd, 0..used))?;
        self.journal.idle();
        Ok(Pass::Moved(used))
    }

    /// Moves what a terminal has to the log and to those attached.
    pub(crate) fn terminal(&mut self, source: Source<'_>, sink: &mut Sink, taps: &mut Taps) -> io::Result<Pass> {
        let log = sink.position();
        self.journal.reading(&Entry { container: source.container.to_owned(), stream: source.kind, log, length: 0 });
        let length = match rustix::io::read(source.fd, &mut self.journal.landing_mut()[..TERMINAL_CHUNK]) {
            Ok(length) if length > 0 => length,
            result => {
                self.journal.idle();
                return match result {
                    // EIO: nobody has the other side open (any more).
                    Ok(_) | Err(Errno::IO) => Ok(Pass::Ended),
                    Err(Errno::AGAIN | Errno::INTR) => Ok(Pass::Starved),
                    Err(errno) => Err(errno.into()),
                };
            }
        };
        self.journal.received(length);
        write_all(&self.journal.landing()[..length], (source.kind, source.line_max), sink, &mut self.pieces);
        taps.feed(source.kind, &self.journal.landing()[..length]);
        self.journal.idle();
        Ok(Pass::Moved(length))
    }

    /// Copies the head of a FIFO into the journal's data without consuming it.
    fn peek(&mut self, fd: BorrowedFd<'_>) -> io::Result<Peek> {
        let length = match rustix::pipe::tee(fd, &self.scratch.1, BATCH, SpliceFlags::NONBLOCK) {
            Ok(0) => return Ok(Peek::End),
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Peek::Empty),
            Err(errno) => return Err(errno.into()),
        };
        let mut filled = 0;
        while filled < length {
            filled += rustix::io::read(&self.scratch.0, &mut self.journal.data_mut()[filled..length])?;
        }
        Ok(Peek::Bytes(length))
    }
}

enum Peek {
    Bytes(usize),
    Empty,
    End,
}

enum Rest {
    /// For its newline.
    Waits,
    /// More came since the peek.
    Grew,
    /// No newline can come, or none could be seen.
    Due,
}

/// What to do with `there` bytes without a newline: they may wait in the FIFO as long as its writers can go on.
fn rest_of_line(fd: BorrowedFd<'_>, there: usize, seen: usize) -> io::Result<Rest> {
    // In this order: after the last writer left, nothing is added.
    let ended = ready(fd, PollFlags::IN)?.contains(PollFlags::HUP);
    if rustix::io::ioctl_fionread(fd)? > there as u64 {
        // More than can be peeked, because it lies in more buffers than the scratch pipe has.
        return Ok(if there == seen { Rest::Due } else { Rest::Grew });
    }
    Ok(if ended || is_full(fd)? { Rest::Due } else { Rest::Waits })
}

/// Whether a writer would wait: splice(2), O_DIRECT writes or a pipe made smaller fill it with few bytes.
fn is_full(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match rustix::fs::open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) {
        Ok(writer) => Ok(!ready(std::os::fd::AsFd::as_fd(&writer), PollFlags::OUT)?.contains(PollFlags::OUT)),
        // An anonymous pipe's write end may not be ours to open: then its line waits.
        Err(_) => Ok(false),
    }
}

fn ready(fd: BorrowedFd<'_>, interest: PollFlags) -> io::Result<PollFlags> {
    let mut fds = [PollFd::from_borrowed_fd(fd, interest)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(fds[0].revents())
}

/// Reads exactly this part of the batch into its place in the landing area. A container that reads its own output can
/// make this come short: its loss alone.
pub(super) fn consume(journal: &mut Journal, fd: BorrowedFd<'_>, part: std::ops::Range<usize>) -> io::Result<()> {
    let mut at = part.start;
    while at < part.end {
        match rustix::io::read(fd, &mut journal.landing_mut()[at..part.end]) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(n) => at += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Writes all of what a terminal gave, whole lines or not.
pub(super) fn write_all(data: &[u8], (kind, line_max): (StreamKind, usize), sink: &mut Sink, pieces: &mut Vec<Piece>) {
    let mut rest = data;
    while !rest.is_empty() {
        let used = cut(rest, line_max, true, pieces);
        sink.write((sink.position(), kind), rest, pieces);
        rest = &rest[used..];
    }
}

#[cfg(test)]
mod tests;
