//! Regular files: created, filled directly from the buffers of the stream, and given their attributes.

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{Mode, OFlags, SeekFrom},
};

use super::{Unpacker, attributes, display_path, stream_error, tar, tar_entry::Entry, tree::path_error};
use crate::Error;

/// From this size on, space is allocated before the file is written, so that it is allocated in one piece.
const ALLOCATE: u64 = 4 * 1024 * 1024;

impl Unpacker {
    pub(super) fn file(&mut self, parent: &OwnedFd, path: &[u8], entry: &Entry) -> Result<(), Error> {
        self.check_size(entry.sparse.as_ref().map_or(entry.stored, |(size, _)| *size))?;
        let mode = entry.meta.mode & !self.umask;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = Mode::from_raw_mode(mode);
        let fd = self.replacing(parent, path, |parent, name| rustix::fs::openat(parent, name, flags, create))?;
        match &entry.sparse {
            None => {
                if entry.stored >= ALLOCATE {
                    // Only a hint: the file can be written without it.
                    let _ = rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::KEEP_SIZE, 0, entry.stored);
                }
                self.fill(fd.as_fd(), path, entry.stored)?;
            }
            Some((size, pieces)) => {
                rustix::fs::ftruncate(&fd, *size).map_err(|cause| path_error(path, "set its size", cause))?;
                for (offset, length) in pieces {
                    rustix::fs::seek(&fd, SeekFrom::Start(*offset)).map_err(|cause| path_error(path, "seek", cause))?;
                    self.fill(fd.as_fd(), path, *length)?;
                }
            }
        }
        self.skip(tar::padding(entry.stored))?;
        attributes::set(fd.as_fd(), path, &entry.meta, mode)
    }

    /// Writes `remaining` bytes of the stream, directly from its buffers.
    fn fill(&mut self, fd: BorrowedFd<'_>, path: &[u8], mut remaining: u64) -> Result<(), Error> {
        while remaining > 0 {
            let at = self.chunks.passed();
            let chunk = match self.chunks.fill() {
                Ok([]) => {
                    return Err(Error::corrupt(format!(
                        "{}: the archive ends in the middle of this file",
                        display_path(path)
                    )));
                }
                Ok(chunk) => chunk,
                Err(cause) => return Err(stream_error(at, &cause)),
            };
            let most = usize::try_from(remaining).unwrap_or(usize::MAX).min(chunk.len());
            let written = rustix::io::retry_on_intr(|| rustix::io::write(fd, &chunk[..most]));
            let written = written.map_err(|cause| path_error(path, "write", cause))?;
            self.chunks.consume(written);
            remaining -= written as u64;
        }
        Ok(())
    }

    /// Skips the body of an entry.
    pub(super) fn skip_body(&mut self, entry: &Entry) -> Result<(), Error> {
        self.check_size(entry.stored)?;
        self.skip(entry.stored.saturating_add(tar::padding(entry.stored)))
    }

    fn skip(&mut self, count: u64) -> Result<(), Error> {
        self.chunks.skip(count).map_err(|cause| stream_error(self.chunks.passed(), &cause))
    }
}
