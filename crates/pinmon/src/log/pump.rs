//! Moves batches of output, one at a time, by the protocol described in `log.rs`.

use std::io;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsRawFd, BorrowedFd, OwnedFd},
    fs::{Mode, OFlags},
    io::Errno,
    pipe::{PipeFlags, SpliceFlags},
};
use syscall::terminal_output::read_terminal;

use super::{
    format::{Piece, cut, entries_max},
    journal::{BATCH, Entry, Journal, TERMINAL_CHUNK},
    pipe_marker::PipeCalls,
    sink::Sink,
    taps::Taps,
};
use crate::stream::StreamKind;

/// A stream to be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) container: &'a str,
    pub(crate) kind: StreamKind,
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) calls: PipeCalls<'a>,
    /// Maximum length of a piece of a line.
    pub(crate) line_max: usize,
    /// Whether partial lines are moved too.
    pub(crate) flush: bool,
}

/// Outcome of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassOutcome {
    /// A batch of this many bytes was moved, and there may be more.
    Moved(usize),
    /// There was nothing to move.
    Empty,
    /// There was only a partial line.
    Partial,
    /// The stream ended.
    Ended,
}

/// Moves batches, with one journal.
#[derive(Debug)]
pub(crate) struct Pump {
    journal: Journal,
    scratch: (OwnedFd, OwnedFd),
    pieces: Vec<Piece>,
}

impl Pump {
    /// Creates a pump with an idle journal.
    pub(crate) fn new(journal: Journal) -> io::Result<Self> {
        let scratch = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { journal, scratch, pieces: Vec::new() })
    }

    /// Moves one batch from a FIFO to the log and to attached clients.
    pub(crate) fn fifo(&mut self, source: Source<'_>, sink: &mut Sink, taps: &mut Taps) -> io::Result<PassOutcome> {
        let flush = source.flush || !taps.is_empty() || sink.file().is_none();
        let mut seen = 0;
        let used = loop {
            let available = match source.calls.during(|| self.peek(source.fd))? {
                Peek::Bytes(n) => n,
                Peek::Empty => return Ok(PassOutcome::Empty),
                Peek::End => return Ok(PassOutcome::Ended),
            };
            let used = cut(&self.journal.data()[..available], source.line_max, flush, &mut self.pieces);
            if used > 0 {
                break used;
            }
            match source.calls.during(|| rest_of_line(source.fd, available, seen))? {
                LineTail::Waits => return Ok(PassOutcome::Partial),
                LineTail::Grew => seen = available,
                LineTail::Due => break cut(&self.journal.data()[..available], source.line_max, true, &mut self.pieces),
            }
        };
        let used = sink.fit(&mut self.pieces).unwrap_or(used);
        let log = sink.position();
        self.journal.prepare(&Entry { container: source.container.to_owned(), stream: source.kind, log, length: used });
        sink.write((log, source.kind), self.journal.data(), &self.pieces);
        self.journal.written();
        taps.send(source.kind, &self.journal.data()[..used]);
        source.calls.during(|| consume(&mut self.journal, source.fd, 0..used))?;
        self.journal.idle();
        Ok(PassOutcome::Moved(used))
    }

    /// Moves the available output of a terminal to the log and to attached clients.
    pub(crate) fn terminal(&mut self, source: Source<'_>, sink: &mut Sink, taps: &mut Taps) -> io::Result<PassOutcome> {
        let log = sink.position();
        self.journal.reading(&Entry { container: source.container.to_owned(), stream: source.kind, log, length: 0 });
        let chunk = sink.chunk_max().min(TERMINAL_CHUNK);
        let length = match read_terminal(source.fd, &mut self.journal.landing_mut()[..chunk]) {
            Ok(length) if length > 0 => length,
            result => {
                self.journal.idle();
                return match result {
                    // No process has it open.
                    Ok(_) => Ok(PassOutcome::Ended),
                    Err(Errno::AGAIN | Errno::INTR) => Ok(PassOutcome::Empty),
                    Err(errno) => Err(errno.into()),
                };
            }
        };
        receive(&mut self.journal, length, sink, source.line_max);
        write_all(&self.journal.landing()[..length], (source.kind, source.line_max), sink, &mut self.pieces);
        taps.send(source.kind, &self.journal.landing()[..length]);
        self.journal.idle();
        Ok(PassOutcome::Moved(length))
    }

    /// Copies the head of a FIFO to the data of the journal without consuming it.
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

enum LineTail {
    /// It can wait for its newline.
    Waits,
    /// The FIFO has more than was peeked.
    Grew,
    /// It must be moved: its newline cannot arrive or be peeked.
    Due,
}

/// Decides about `available` bytes without a newline. They can wait in the FIFO as long as its writers can write more.
fn rest_of_line(fd: BorrowedFd<'_>, available: usize, seen: usize) -> io::Result<LineTail> {
    // In this order, because nothing is added after the last writer closed the FIFO.
    let ended = ready(fd, PollFlags::IN)?.contains(PollFlags::HUP);
    if rustix::io::ioctl_fionread(fd)? > available as u64 {
        // More than can be peeked, because it uses more buffers than the scratch pipe has.
        return Ok(if available == seen { LineTail::Due } else { LineTail::Grew });
    }
    Ok(if ended || is_full(fd)? { LineTail::Due } else { LineTail::Waits })
}

/// Whether a write to the FIFO would block. splice(2), O_DIRECT writes or a smaller pipe size fill it with few bytes.
fn is_full(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match rustix::fs::open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) {
        Ok(writer) => Ok(!ready(std::os::fd::AsFd::as_fd(&writer), PollFlags::OUT)?.contains(PollFlags::OUT)),
        // The write end of an anonymous pipe may not be accessible; then the line waits.
        Err(_) => Ok(false),
    }
}

fn ready(fd: BorrowedFd<'_>, interest: PollFlags) -> io::Result<PollFlags> {
    let mut fds = [PollFd::from_borrowed_fd(fd, interest)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(fds[0].revents())
}

/// Reads exactly this part of the batch into its place in the landing area. It comes up short if a container reads its
/// own output, which only loses that container's output.
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

/// Records that this number of bytes was read from a terminal, after the log got room for them.
pub(super) fn receive(journal: &mut Journal, length: usize, sink: &mut Sink, line_max: usize) {
    sink.make_room(entries_max(&journal.landing()[..length], line_max));
    journal.received(length, sink.position());
}

/// Writes all data read from a terminal, including partial lines.
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
