//! Log file of a container. If it cannot be written, output is dropped and counted instead of blocking the container,
//! and the log gets an entry about it as soon as it can be written again.

use std::io::{self, IoSlice};

use rustix::{
    fd::{AsRawFd, OwnedFd},
    fs::{FileType, Mode, OFlags, fcntl_getfl, fstat, ftruncate, open},
};

use super::{
    format::{Piece, Prefix},
    journal::LogPosition,
    limit::{ReplacedLog, SizeLimit},
};
use crate::stream::StreamKind;

/// Output that did not reach the log. It is preserved when the log writer is replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Loss {
    /// Number of bytes since the start of the container.
    pub(crate) total: u64,
    /// Number of dropped bytes that were not reported in the log yet, and the cause.
    pub(crate) unwritten: Option<(u64, String)>,
    /// Total at which the daemon is notified again. It is doubled each time, so that a full disk does not cause many
    /// events.
    #[serde(rename = "tell_at")]
    pub(crate) report_at: u64,
}

/// Destination of output.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    file: Option<OwnedFd>,
    /// Error of opening the log, if there is one.
    open_error: Option<String>,
    loss: Loss,
    /// A loss that the monitor was not sent yet. With a message, the daemon must be notified too.
    unreported: Option<Option<String>>,
    limit: Option<SizeLimit>,
    /// Why a log that has reached its maximum size could not be replaced.
    limit_error: Option<String>,
    replaced: Option<ReplacedLog>,
}

impl Sink {
    /// Creates a sink. Without a file, output is only sent to attached clients. An `O_PATH` descriptor is opened here.
    pub(crate) fn new(file: Option<OwnedFd>, limit: Option<SizeLimit>, loss: Loss) -> Self {
        let mut sink = Self { limit, loss, ..Self::default() };
        if let Some(file) = file {
            sink.open(file);
        }
        sink
    }

    fn open(&mut self, file: OwnedFd) {
        // Another log writer may have replaced the log since the monitor received this descriptor.
        let replacement = self.limit.as_ref().and_then(SizeLimit::open);
        (self.file, self.open_error) = match replacement.map_or_else(|| writable(file), Ok) {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(format!("open the log: {error}"))),
        };
    }

    /// Continues in another file, whose directory may be another one.
    pub(crate) fn reopen(&mut self, file: OwnedFd, directory: Option<OwnedFd>) {
        if let (Some(limit), Some(directory)) = (&mut self.limit, directory) {
            limit.directory = directory;
        }
        self.open(file);
        self.loss.report_at = 0;
    }

    /// Returns the file.
    pub(crate) fn file(&self) -> Option<&OwnedFd> {
        self.file.as_ref()
    }

    /// Returns the identity and size of the file. `None` if there is no file or it cannot be truncated.
    pub(crate) fn position(&self) -> Option<LogPosition> {
        let stat = fstat(self.file.as_ref()?).ok()?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let position = LogPosition { device: stat.st_dev, inode: stat.st_ino, size: stat.st_size as u64 };
        regular.then_some(position)
    }

    /// Makes room for these pieces, and removes those that do not fit into the log. Returns the number of bytes that the
    /// remaining ones cover; `None`: the log has no maximum size.
    pub(crate) fn fit(&mut self, pieces: &mut Vec<Piece>) -> Option<usize> {
        let first = pieces.first()?.entry_length();
        let mut room = self.make_room(first)?;
        let fits = |piece: &&Piece| {
            let remaining = room.checked_sub(piece.entry_length());
            room = remaining.unwrap_or(room);
            remaining.is_some()
        };
        // A piece is shorter than an empty log may be. Without room, the output is dropped.
        let count = pieces.iter().take_while(fits).count().max(1);
        pieces.truncate(count);
        pieces.last().map(|piece| piece.end)
    }

    /// Replaces the log if entries of this length would exceed its maximum size. Returns its room in bytes; `None`: its
    /// size is not limited.
    pub(crate) fn make_room(&mut self, length: u64) -> Option<u64> {
        self.replaced.take_if(|replaced| replaced.is_expired());
        let size_max = self.limit.as_ref()?.size_max();
        let size = self.position()?.size;
        let room = size_max.saturating_sub(size).saturating_sub(self.notice_length());
        self.limit_error = None;
        if room >= length || size == 0 {
            return Some(room);
        }
        if let Err(error) = self.replace() {
            self.limit_error = Some(format!("the log reached its maximum size, and replacing it failed: {error}"));
        }
        Some(size_max.saturating_sub(self.notice_length()))
    }

    /// Releases a replaced log immediately, as some time after it was replaced.
    #[cfg(test)]
    pub(crate) fn replaced_logs_expire(&mut self) {
        self.replaced = None;
    }

    /// Returns how many bytes of a terminal may be read at a time, so that their entries fit into an empty log.
    pub(crate) fn chunk_max(&self) -> usize {
        self.limit.as_ref().map_or(usize::MAX, SizeLimit::chunk_max)
    }

    /// Continues in an empty file of the same name.
    fn replace(&mut self) -> io::Result<()> {
        let (Some(limit), Some(file)) = (&self.limit, &self.file) else { return Ok(()) };
        let new = limit.replace(file)?;
        let why = format!("the log reached its maximum size, {} bytes", limit.size_max());
        let Some(old) = self.file.replace(new) else { return Ok(()) };
        let old = ReplacedLog::new(old);
        // A log that kubelet has renamed in the meantime is not lost.
        if let Some(size) = old.removed_size() {
            self.drop_bytes(size, why);
        }
        self.replaced = Some(old);
        Ok(())
    }

    /// Returns the length of the entry about lost output that the next write begins with.
    fn notice_length(&self) -> u64 {
        self.loss.unwritten.as_ref().map_or(0, |(bytes, why)| notice(0, *bytes, why).len() as u64)
    }

    /// Writes these pieces of `data`, all or none: after a short write to a full disk, the file is truncated to its
    /// previous size.
    pub(crate) fn write(&mut self, at: (Option<LogPosition>, StreamKind), data: &[u8], pieces: &[Piece]) {
        let Some(file) = &self.file else {
            if let Some(why) = self.open_error.clone() {
                self.drop_bytes(pieces.last().map_or(0, |p| p.end) as u64, why);
            }
            return;
        };
        if let Some(why) = self.limit_error.clone() {
            return self.drop_bytes(pieces.last().map_or(0, |p| p.end) as u64, why);
        }
        let now = crate::clock::realtime();
        let full = Prefix::new(now, at.1);
        let partial = full.partial();
        let notice = self.loss.unwritten.as_ref().map(|(bytes, why)| notice(now, *bytes, why));
        let mut slices = Vec::with_capacity(pieces.len() * 3 + 1);
        slices.extend(notice.iter().map(|text| IoSlice::new(text)));
        for piece in pieces {
            slices.push(IoSlice::new(if piece.full { full.bytes() } else { partial.bytes() }));
            slices.push(IoSlice::new(&data[piece.start..piece.end]));
            if !piece.full {
                slices.push(IoSlice::new(b"\n"));
            }
        }
        match write_whole(file, &mut slices) {
            Ok(()) => {
                if self.loss.unwritten.take().is_some() {
                    self.unreported.get_or_insert(None);
                }
            }
            Err(error) => {
                if let Some(position) = at.0 {
                    let _ = ftruncate(file, position.size);
                }
                self.drop_bytes(pieces.last().map_or(0, |p| p.end) as u64, error.to_string());
            }
        }
    }

    /// Truncates the log to this position, if it is the same file and is longer.
    pub(crate) fn cut_back(&self, to: LogPosition) -> io::Result<()> {
        let (Some(file), Some(now)) = (&self.file, self.position()) else { return Ok(()) };
        if (now.device, now.inode) == (to.device, to.inode) && now.size > to.size {
            ftruncate(file, to.size)?;
        }
        Ok(())
    }

    /// Returns a loss that the monitor was not sent yet, once, and the message that the daemon is to be notified with.
    pub(crate) fn take_loss(&mut self) -> Option<(Loss, Option<String>)> {
        self.unreported.take().map(|message| (self.loss.clone(), message))
    }

    fn drop_bytes(&mut self, bytes: u64, message: String) {
        let loss = &mut self.loss;
        loss.total += bytes;
        let before = loss.unwritten.take().map_or(0, |(bytes, _)| bytes);
        loss.unwritten = Some((before + bytes, message.clone()));
        if loss.total >= loss.report_at {
            loss.report_at = loss.total * 2;
            self.unreported = Some(Some(message));
        }
    }
}

/// Opens the file of an `O_PATH` descriptor for appending. Returns other descriptors unchanged.
fn writable(file: OwnedFd) -> io::Result<OwnedFd> {
    if !fcntl_getfl(&file)?.contains(OFlags::PATH) {
        return Ok(file);
    }
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty())?)
}

fn notice(now: u64, bytes: u64, why: &str) -> Vec<u8> {
    let mut text = Prefix::new(now, StreamKind::Stderr).bytes().to_vec();
    text.extend_from_slice(format!("[pinmon: {bytes} bytes of output were dropped here: {why}]\n").as_bytes());
    text
}

fn write_whole(file: &OwnedFd, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !slices.is_empty() {
        match rustix::io::writev(file, slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut slices, n),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
