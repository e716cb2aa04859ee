//! A container's log file, and what happens when it cannot be written: output is dropped and counted, never held up, and
//! the log says so as soon as it can be written again.

use std::io::{self, IoSlice};

use rustix::{
    fd::OwnedFd,
    fs::{FileType, fstat, ftruncate},
};

use super::{
    format::{Piece, Prefix},
    journal::LogPosition,
};
use crate::stream::StreamKind;

/// Output that did not reach the log.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Dropped {
    pub(crate) message: String,
    /// Bytes since the container began.
    pub(crate) total: u64,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(crate) file: Option<OwnedFd>,
    pub(crate) total: u64,
    /// Dropped bytes that the log does not know of yet, and why.
    pub(crate) unwritten: Option<(u64, String)>,
    /// What the daemon does not know of yet.
    pub(crate) news: Option<Dropped>,
    /// The total at which the daemon is told again: doubling, so that a full disk is no flood of events.
    pub(crate) tell_at: u64,
}

impl Sink {
    /// `None`: output is only for those who attach.
    pub(crate) fn new(file: Option<OwnedFd>) -> Self {
        Self { file, ..Self::default() }
    }

    /// Continues in another file.
    pub(crate) fn reopen(&mut self, file: OwnedFd) {
        self.file = Some(file);
        self.tell_at = 0;
    }

    /// The file, for `Inventory`.
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
        let Some(file) = &self.file else { return };
        let now = crate::clock::realtime();
        let full = Prefix::new(now, at.1);
        let partial = full.partial();
        let notice = self.unwritten.as_ref().map(|(bytes, why)| notice(now, *bytes, why));
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
            Ok(()) => self.unwritten = None,
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

    /// What the daemon shall be told, once.
    pub(crate) fn take_news(&mut self) -> Option<Dropped> {
        self.news.take()
    }

    fn drop_bytes(&mut self, bytes: u64, message: String) {
        self.total += bytes;
        let before = self.unwritten.take().map_or(0, |(bytes, _)| bytes);
        self.unwritten = Some((before + bytes, message.clone()));
        if self.total >= self.tell_at {
            self.tell_at = self.total * 2;
            self.news = Some(Dropped { message, total: self.total });
        }
    }
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
