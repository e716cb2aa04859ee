//! A container's log file, and what happens when it cannot be written: output is dropped and counted, never held up,
//! and the log says so as soon as it can be written again.

use std::io::{self, IoSlice};

use rustix::{
    fd::{AsRawFd, OwnedFd},
    fs::{FileType, Mode, OFlags, fcntl_getfl, fstat, ftruncate, open},
};

use super::{
    format::{Piece, Prefix},
    journal::LogPosition,
};
use crate::stream::StreamKind;

/// Output that did not reach the log: outlives the process that writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Loss {
    /// Bytes since the container began.
    pub(crate) total: u64,
    /// Dropped bytes that the log does not know of yet, and why.
    pub(crate) unwritten: Option<(u64, String)>,
    /// The total at which the daemon is notified again: doubling, so that a full disk is no flood of events.
    pub(crate) tell_at: u64,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    file: Option<OwnedFd>,
    /// Why there is no file, where there is a log.
    missing: Option<String>,
    loss: Loss,
    /// The monitor does not know of the loss yet; with a message, neither does the daemon.
    news: Option<Option<String>>,
}

impl Sink {
    /// `None`: output is only for those who attach. A file of `O_PATH` is opened here.
    pub(crate) fn new(file: Option<OwnedFd>, loss: Loss) -> Self {
        let mut sink = Self { loss, ..Self::default() };
        if let Some(file) = file {
            sink.open(file);
        }
        sink
    }

    fn open(&mut self, file: OwnedFd) {
        (self.file, self.missing) = match writable(file) {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(format!("open the log: {error}"))),
        };
    }

    /// Continues in another file.
    pub(crate) fn reopen(&mut self, file: OwnedFd) {
        self.open(file);
        self.loss.tell_at = 0;
    }

    /// The file.
    pub(crate) fn file(&self) -> Option<&OwnedFd> {
        self.file.as_ref()
    }

    /// Which file it is and how long; `None` where there is none or it cannot be cut back.
    pub(crate) fn position(&self) -> Option<LogPosition> {
        let stat = fstat(self.file.as_ref()?).ok()?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let position = LogPosition { device: stat.st_dev, inode: stat.st_ino, size: stat.st_size as u64 };
        regular.then_some(position)
    }

    /// Writes these pieces of `data`, all or none: what a full disk cut off is taken back.
    pub(crate) fn write(&mut self, at: (Option<LogPosition>, StreamKind), data: &[u8], pieces: &[Piece]) {
        let Some(file) = &self.file else {
            if let Some(why) = self.missing.clone() {
                self.drop_bytes(pieces.last().map_or(0, |p| p.end) as u64, why);
            }
            return;
        };
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
                    self.news.get_or_insert(None);
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

    /// Cuts the log back to where it was, if it is that file and was not cut already.
    pub(crate) fn cut_back(&self, to: LogPosition) -> io::Result<()> {
        let (Some(file), Some(now)) = (&self.file, self.position()) else { return Ok(()) };
        if (now.device, now.inode) == (to.device, to.inode) && now.size > to.size {
            ftruncate(file, to.size)?;
        }
        Ok(())
    }

    /// What the monitor shall know, once; and what the daemon is to report with it.
    pub(crate) fn take_news(&mut self) -> Option<(Loss, Option<String>)> {
        self.news.take().map(|message| (self.loss.clone(), message))
    }

    fn drop_bytes(&mut self, bytes: u64, message: String) {
        let loss = &mut self.loss;
        loss.total += bytes;
        let before = loss.unwritten.take().map_or(0, |(bytes, _)| bytes);
        loss.unwritten = Some((before + bytes, message.clone()));
        if loss.total >= loss.tell_at {
            loss.tell_at = loss.total * 2;
            self.news = Some(Some(message));
        }
    }
}

/// The file itself, where this is a mere place.
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
