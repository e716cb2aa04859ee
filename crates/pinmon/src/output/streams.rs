//! Output of a container in the monitor: its descriptors, so that they outlive a log writer, and what was sent to the
//! log writer.
//!
//! The monitor itself never reads or writes these descriptors.

use std::time::Duration;

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, FileType, Mode, OFlags, StatxFlags, makedev, statx},
};

use crate::{
    closing::{self, CloseQueue, Pipe, Terminal},
    link::RequestId,
    log::{limit::SizeLimit, sink::Loss},
    log_writer::order::{Add, EndPhase, Order},
    stream::StreamKind,
};

/// Identifies the log writer of an output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Device number of the file system of the log. `None` without a log.
    pub(crate) device: Option<u64>,
    /// A dedicated log writer, for the container of this serial number or, if 0, for several containers that block log
    /// writers and each other.
    pub(crate) dedicated: Option<u64>,
}

/// An output stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) kind: StreamKind,
    pub(crate) file: StreamFile,
}

/// Source of a stream.
#[derive(Debug)]
pub(crate) enum StreamFile {
    Fifo(Pipe),
    Terminal(Terminal),
}

impl StreamFile {
    /// Wraps a FIFO or a master side.
    pub(crate) fn new(file: OwnedFd, terminal: bool, close_queue: &CloseQueue) -> Self {
        if terminal {
            Self::Terminal(Terminal::new(file, close_queue))
        } else {
            Self::Fifo(Pipe::new(file, close_queue))
        }
    }

    /// Returns the master side, if it is a terminal.
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

/// Pipe of an attached client.
#[derive(Debug)]
pub(crate) struct Tap {
    /// Number of the pipe between monitor and log writer.
    pub(crate) number: u8,
    pub(crate) kind: StreamKind,
    pub(crate) pipe: OwnedFd,
    sent: bool,
}

impl Tap {
    /// Ends the output for the client, even if a log writer that cannot exit has a copy. If the client attached a pipe
    /// and not a socket, its output ends with the last copy.
    fn end(&self) {
        let _ = rustix::net::shutdown(&self.pipe, rustix::net::Shutdown::Write);
    }
}

/// Output of a container.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Container id.
    pub(crate) container: String,
    pub(crate) streams: Vec<Stream>,
    /// An `O_PATH` descriptor, see [`as_path_descriptor`].
    pub(crate) log: Option<OwnedFd>,
    pub(crate) taps: Vec<Tap>,
    pub(crate) line_max: usize,
    pub(crate) limit: Option<SizeLimit>,
    /// Selects the log writer. It does not change unless the container blocks its writer.
    pub(crate) place: Place,
    pub(crate) loss: Loss,
    /// Journals of dead log writers with a batch of this container.
    pub(crate) recover: Vec<String>,
    pub(crate) end: EndPhase,
    /// Moment of [`crate::clock::monotonic`] at which the container exited.
    pub(crate) ended_at: Duration,
    /// `ReopenLog` requests that wait for the log writer.
    pub(crate) reopens: Vec<RequestId>,
    /// Whether it is in the queue of its log writer.
    pub(crate) queued: bool,
    /// Whether output stays in its FIFOs until its log is attached.
    pub(crate) awaits_log: bool,
    sent: Sent,
}

/// What the log writer was sent.
#[derive(Debug, Default)]
struct Sent {
    added: bool,
    log: bool,
    end: EndPhase,
}

impl Output {
    /// Creates the output of a container with this log. Lines are cut into pieces of at most `line_max` bytes.
    pub(crate) fn new(container: &str, log: Option<OwnedFd>, line_max: usize) -> Self {
        let log = log.map(as_path_descriptor);
        let place = Place { device: log.as_ref().and_then(device), dedicated: None };
        Self { container: container.to_owned(), log, line_max, place, ..Self::default() }
    }

    /// Adds a stream, a FIFO or the master side of a terminal, and makes it non-blocking.
    pub(crate) fn add(&mut self, kind: StreamKind, fd: OwnedFd, close_queue: &CloseQueue) -> std::io::Result<()> {
        let terminal = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::Fifo;
        let file = StreamFile::new(fd, terminal, close_queue);
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags | OFlags::NONBLOCK)?;
        self.streams.push(Stream { kind, file });
        Ok(())
    }

    /// Returns the stream of this kind.
    pub(crate) fn stream(&self, kind: StreamKind) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.kind == kind)
    }

    /// Returns the master side, if the output is a terminal.
    pub(crate) fn terminal(&self) -> Option<&Terminal> {
        self.streams.iter().find_map(|stream| stream.file.terminal())
    }

    /// Adds a pipe of a client under an unused number. Returns `false` if there are too many.
    pub(crate) fn tap(&mut self, kind: StreamKind, pipe: OwnedFd) -> bool {
        let free = (0..u8::MAX).find(|number| self.taps.iter().all(|tap| tap.number != *number));
        self.taps.extend(free.map(|number| Tap { number, kind, pipe, sent: false }));
        free.is_some()
    }

    /// Removes a pipe that was closed or dropped.
    pub(crate) fn untap(&mut self, number: u8) {
        self.taps.extract_if(.., |tap| tap.number == number).for_each(|tap| tap.end());
    }

    /// Adds a pipe that the previous program of this process had.
    pub(crate) fn restore_tap(&mut self, number: u8, kind: StreamKind, pipe: OwnedFd) {
        self.taps.push(Tap { number, kind, pipe, sent: false });
    }

    /// Continues the log in another file. The output keeps its log writer even if the file is on another file system,
    /// because a batch may be in progress.
    pub(crate) fn reopen(&mut self, file: OwnedFd, directory: Option<OwnedFd>) {
        if !self.is_open() {
            return;
        }
        if let (Some(limit), Some(directory)) = (&mut self.limit, directory) {
            limit.directory = directory;
        }
        let log = as_path_descriptor(file);
        if std::mem::take(&mut self.awaits_log) && self.recover.is_empty() {
            self.place.device = device(&log);
        }
        self.log = Some(log);
        self.sent.log = false;
    }

    /// Records the phase of the container's exit.
    pub(crate) fn end(&mut self, end: EndPhase) {
        self.end = self.end.max(end);
    }

    /// Whether output may still arrive or be in progress.
    pub(crate) fn is_open(&self) -> bool {
        !self.streams.is_empty()
    }

    /// Whether all output is in the log, given that no process can write any longer and no client is attached. A log
    /// writer consumes only output that it has written.
    pub(crate) fn is_empty(&self) -> bool {
        let is_fifo = |stream: &Stream| matches!(stream.file, StreamFile::Fifo(_));
        self.taps.is_empty()
            && self.recover.is_empty()
            && self.streams.iter().all(is_fifo)
            && closing::are_empty(self.streams.iter().map(|stream| stream.file.as_fd()))
    }

    /// Closes streams, clients and the log after all output was moved. If the log writer is running, it closes its
    /// copies later.
    pub(crate) fn close(&mut self, writer_lives: bool) {
        for stream in &mut self.streams {
            if let (StreamFile::Fifo(pipe), true) = (&mut stream.file, self.sent.added && writer_lives) {
                pipe.mark_copied();
            }
        }
        self.streams.clear();
        self.taps.iter().for_each(Tap::end);
        self.taps.clear();
        self.log = None;
        self.limit = None;
    }

    /// Forgets what was sent, because the log writer died or was not started, and the next one needs everything.
    pub(crate) fn forget_sent(&mut self) {
        self.sent = Sent::default();
        self.queued = false;
        self.taps.iter_mut().for_each(|tap| tap.sent = false);
    }

    /// Returns the next order that the log writer was not sent, with its descriptors.
    pub(crate) fn next_order(&self, serial: u64) -> Option<(Order, Vec<BorrowedFd<'_>>)> {
        let log = self.log.as_ref().map(AsFd::as_fd);
        let limit = self.limit.as_ref().filter(|_| log.is_some());
        let directory = limit.map(|limit| limit.directory.as_fd());
        if !self.is_open() {
            return None;
        }
        if !self.sent.added {
            let add = Add {
                serial,
                container: self.container.clone(),
                line_max: self.line_max,
                streams: self.streams.iter().map(|stream| (stream.kind, stream.file.terminal().is_some())).collect(),
                log: log.is_some(),
                limit: limit.map(|limit| limit.limit.clone()),
                loss: self.loss.clone(),
                recover: self.recover.clone(),
                end: EndPhase::Open,
            };
            let files = self.streams.iter().map(|stream| stream.file.as_fd()).chain(log).chain(directory).collect();
            return Some((Order::Add(add), files));
        }
        if let Some(tap) = self.taps.iter().find(|tap| !tap.sent) {
            let order = Order::Tap { serial, number: tap.number, kind: tap.kind };
            return Some((order, vec![tap.pipe.as_fd()]));
        }
        if let (Some(log), false) = (log, self.sent.log) {
            return Some((Order::Reopen { serial }, [log].into_iter().chain(directory).collect()));
        }
        (self.end > self.sent.end).then(|| (Order::End { serial, end: self.end }, Vec::new()))
    }

    /// Records that an order was sent.
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

/// Converts a descriptor to `O_PATH`; the log writer opens the file again.
///
/// Closing a file that is open for writing waits for the server (NFS writes back then), and the monitor closes its
/// descriptors when containers are removed.
fn as_path_descriptor(file: OwnedFd) -> OwnedFd {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap_or(file)
}

/// Returns the device number of the file's file system that the kernel has cached, without a request to a server.
fn device(file: &OwnedFd) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let attributes = statx(file, c"", flags, StatxFlags::empty()).ok()?;
    Some(makedev(attributes.stx_dev_major, attributes.stx_dev_minor))
}
