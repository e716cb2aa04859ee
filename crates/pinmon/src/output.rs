//! A container's output as the monitor holds it: descriptors, so that they outlive a log writer, and what its writer
//! was sent.
//!
//! The monitor itself reads and writes none of them.

use std::time::Duration;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, makedev, statx},
};

use crate::{
    connection::Asked,
    log::sink::Loss,
    log_writer::order::{Add, End, Order},
    pipe::{self, Pipe},
    stream::StreamKind,
    terminal::{Closing, Terminal},
};

/// Which log writer moves an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Device number of the file system that the log is on; `None`: it has no log.
    pub(crate) device: Option<u64>,
    /// A writer apart from that of the others: for the container of this serial number, or, 0, for several that hold up
    /// writers, and each other.
    pub(crate) apart: Option<u64>,
}

/// One stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) kind: StreamKind,
    pub(crate) file: StreamFile,
}

/// Where output comes from.
#[derive(Debug)]
pub(crate) enum StreamFile {
    Fifo(Pipe),
    Terminal(Terminal),
}

impl StreamFile {
    /// Of a descriptor that is one of the two.
    pub(crate) fn new(file: OwnedFd, terminal: bool, closing: &Closing) -> Self {
        if terminal { Self::Terminal(closing.own(file)) } else { Self::Fifo(Pipe::new(file, closing)) }
    }

    /// The master side, where it is a terminal.
    pub(crate) fn terminal(&self) -> Option<&Terminal> {
        if let Self::Terminal(terminal) = self { Some(terminal) } else { None }
    }
}

impl AsFd for StreamFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Fifo(file) => file.as_fd(),
            Self::Terminal(terminal) => terminal.as_fd(),
        }
    }
}

/// A pipe of an attached client.
#[derive(Debug)]
pub(crate) struct Tap {
    /// Names it between monitor and writer.
    pub(crate) number: u8,
    pub(crate) kind: StreamKind,
    pub(crate) pipe: OwnedFd,
    sent: bool,
}

impl Tap {
    /// The end of output, also where another process has a copy: a log writer that cannot end. Where the client made a
    /// pipe, its end is that of the last copy.
    fn end(&self) {
        let _ = rustix::net::shutdown(&self.pipe, rustix::net::Shutdown::Write);
    }
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) streams: Vec<Stream>,
    /// `O_PATH`: see [`held`].
    pub(crate) log: Option<OwnedFd>,
    pub(crate) taps: Vec<Tap>,
    pub(crate) line_max: usize,
    /// Chooses the writer, which stays the same for life unless the container holds it up.
    pub(crate) place: Place,
    pub(crate) loss: Loss,
    /// Journals of dead writers that hold a batch of this container.
    pub(crate) recover: Vec<String>,
    pub(crate) end: End,
    /// Moment of [`crate::clock::monotonic`] at which the container ended.
    pub(crate) ended_at: Duration,
    /// `ReopenLog`s that wait for the writer.
    pub(crate) reopens: Vec<Asked>,
    /// It waits in its writer's queue.
    pub(crate) queued: bool,
    /// Nothing is moved before it has a log: output stays in its FIFOs.
    pub(crate) awaits_log: bool,
    sent: Sent,
}

/// What the writer was sent.
#[derive(Debug, Default)]
struct Sent {
    added: bool,
    log: bool,
    end: End,
}

impl Output {
    /// Of a container with this log. Lines are cut into pieces of at most `line_max` bytes.
    pub(crate) fn new(log: Option<OwnedFd>, line_max: usize) -> Self {
        let log = log.map(held);
        let place = Place { device: log.as_ref().and_then(device), apart: None };
        Self { log, line_max, place, ..Self::default() }
    }

    /// Adds a stream: non-blocking, a FIFO or a terminal's master side.
    pub(crate) fn add(&mut self, kind: StreamKind, fd: OwnedFd, closing: &Closing) -> std::io::Result<()> {
        let terminal = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::Fifo;
        let file = StreamFile::new(fd, terminal, closing);
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags | OFlags::NONBLOCK)?;
        self.streams.push(Stream { kind, file });
        Ok(())
    }

    /// The stream's end of this kind.
    pub(crate) fn stream(&self, kind: StreamKind) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.kind == kind)
    }

    /// The master side, where it is a terminal.
    pub(crate) fn terminal(&self) -> Option<&Terminal> {
        self.streams.iter().find_map(|stream| stream.file.terminal())
    }

    /// Adds a client's pipe under a free number; `false`: there are too many.
    pub(crate) fn tap(&mut self, kind: StreamKind, pipe: OwnedFd) -> bool {
        let free = (0..u8::MAX).find(|number| self.taps.iter().all(|tap| tap.number != *number));
        self.taps.extend(free.map(|number| Tap { number, kind, pipe, sent: false }));
        free.is_some()
    }

    /// A client is gone, or was dropped.
    pub(crate) fn untap(&mut self, number: u8) {
        self.taps.extract_if(.., |tap| tap.number == number).for_each(|tap| tap.end());
    }

    /// One that another program of this process had.
    pub(crate) fn restore_tap(&mut self, number: u8, kind: StreamKind, pipe: OwnedFd) {
        self.taps.push(Tap { number, kind, pipe, sent: false });
    }

    /// Continues in another file. It stays with its place, also where that file is on another file system: a batch may
    /// be on its way.
    pub(crate) fn reopen(&mut self, file: OwnedFd) {
        if !self.is_open() {
            return;
        }
        let log = held(file);
        if std::mem::take(&mut self.awaits_log) && self.recover.is_empty() {
            self.place.device = device(&log);
        }
        self.log = Some(log);
        self.sent.log = false;
    }

    /// The container's end came nearer.
    pub(crate) fn end(&mut self, end: End) {
        self.end = self.end.max(end);
    }

    /// Whether output may still come, or be on its way.
    pub(crate) fn is_open(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Whether all that was written is in the log, where nobody is left who could write and no client is attached: a
    /// log writer consumes only what it has written.
    pub(crate) fn is_empty(&self) -> bool {
        let is_fifo = |stream: &Stream| matches!(stream.file, StreamFile::Fifo(_));
        self.taps.is_empty()
            && self.recover.is_empty()
            && self.streams.iter().all(is_fifo)
            && pipe::are_empty(self.streams.iter().map(|stream| stream.file.as_fd()))
    }

    /// Closes streams, clients and the log: all that was to come has come. Its writer, if that lives, closes its copies
    /// later.
    pub(crate) fn close(&mut self, writer_lives: bool) {
        for stream in &mut self.streams {
            if let (StreamFile::Fifo(pipe), true) = (&mut stream.file, self.sent.added && writer_lives) {
                pipe.is_elsewhere();
            }
        }
        self.streams.clear();
        self.taps.iter().for_each(Tap::end);
        self.taps.clear();
        self.log = None;
    }

    /// Its writer is dead, or not started: the next one needs to be sent all.
    pub(crate) fn lost_writer(&mut self) {
        self.sent = Sent::default();
        self.queued = false;
        self.taps.iter_mut().for_each(|tap| tap.sent = false);
    }

    /// What the writer does not know yet: the next order, and its descriptors.
    pub(crate) fn next_order(&self, serial: u64, container: &str) -> Option<(Order, Vec<BorrowedFd<'_>>)> {
        let log = self.log.as_ref().map(AsFd::as_fd);
        if !self.is_open() {
            return None;
        }
        if !self.sent.added {
            let add = Add {
                serial,
                container: container.to_owned(),
                line_max: self.line_max,
                streams: self.streams.iter().map(|stream| (stream.kind, stream.file.terminal().is_some())).collect(),
                log: log.is_some(),
                loss: self.loss.clone(),
                recover: self.recover.clone(),
                end: End::Open,
            };
            let files = self.streams.iter().map(|stream| stream.file.as_fd()).chain(log).collect();
            return Some((Order::Add(add), files));
        }
        if let Some(tap) = self.taps.iter().find(|tap| !tap.sent) {
            let order = Order::Tap { serial, number: tap.number, kind: tap.kind };
            return Some((order, vec![tap.pipe.as_fd()]));
        }
        if let (Some(log), false) = (log, self.sent.log) {
            return Some((Order::Reopen { serial }, vec![log]));
        }
        (self.end > self.sent.end).then(|| (Order::End { serial, end: self.end }, Vec::new()))
    }

    /// The order that was next was sent.
    pub(crate) fn sent(&mut self, order: &Order) {
        match order {
            Order::Add(add) => self.sent = Sent { added: true, log: true, end: add.end },
            Order::Reopen { .. } => self.sent.log = true,
            Order::Tap { number, .. } => {
                self.taps.iter_mut().filter(|tap| tap.number == *number).for_each(|tap| tap.sent = true);
            }
            Order::End { end, .. } => self.sent.end = *end,
            Order::Close { .. } | Order::Forget { .. } => {}
        }
    }
}

/// The same file as a mere place (`O_PATH`), which its writer opens: the close of a file that is open for writing waits
/// for a server that is gone (NFS writes back then), and the monitor closes its descriptors when containers go.
fn held(file: OwnedFd) -> OwnedFd {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap_or(file)
}

/// The device number of a file's file system, as the kernel has it at hand: nothing is asked of a server.
fn device(file: &OwnedFd) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(file, c"", flags, StatxFlags::empty()).ok()?;
    Some(makedev(found.stx_dev_major, found.stx_dev_minor))
}
