//! Maximum size of a log. A log that has reached it is replaced by an empty file of the same name, as conmon does
//! (`--log-size-max`).
//!
//! A file that is renamed into place is noticed by readers that follow the log (`kubectl logs -f`): they continue in the
//! new file, as after a rotation. A log that is truncated would leave them behind its end.

use std::{io, time::Duration};

use monitor_api::LogLimit;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{AtFlags, FileType, Mode, OFlags, fchmod, fchown, fstat, ftruncate, openat, renameat, unlinkat},
    process::geteuid,
};

use super::format::Prefix;
use crate::clock;

/// Time in which readers of a replaced log can read the rest of it.
const GRACE: Duration = Duration::from_secs(1);
/// Part of the maximum size that entries about lost output may have.
const NOTICES: u64 = 1024;

const APPEND: OFlags = OFlags::WRONLY
    .union(OFlags::APPEND)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Maximum size of a log, and the directory in which it is replaced.
#[derive(Debug)]
pub(crate) struct SizeLimit {
    pub(crate) limit: LogLimit,
    /// An `O_PATH` descriptor.
    pub(crate) directory: OwnedFd,
}

impl SizeLimit {
    /// Returns the maximum size in bytes.
    pub(crate) fn size_max(&self) -> u64 {
        self.limit.size_max.max(LogLimit::SIZE_MIN)
    }

    /// Returns the maximum length of a piece of a line, so that its entry fits into an empty log.
    pub(crate) fn line_max(&self) -> usize {
        usize::try_from(self.size_max() - NOTICES).unwrap_or(usize::MAX) - Prefix::LENGTH - 1
    }

    /// Returns the maximum number of bytes whose entries fit into an empty log, even if each is a line.
    pub(super) fn chunk_max(&self) -> usize {
        self.line_max() / (Prefix::LENGTH + 1)
    }

    /// Opens the log by its name. `None`: this file does not exist or is not a log.
    pub(super) fn open(&self) -> Option<OwnedFd> {
        let file = openat(&self.directory, self.limit.name.as_str(), APPEND, Mode::empty()).ok()?;
        let stat = fstat(&file).ok()?;
        let is_log =
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_uid == geteuid().as_raw();
        is_log.then_some(file)
    }

    /// Replaces the log, which has the owner and mode of `old`, by an empty file. Returns that file.
    pub(super) fn replace(&self, old: &OwnedFd) -> io::Result<OwnedFd> {
        // Neither the kubelet nor log collectors consider names that start with a dot.
        let (name, partial) = (self.limit.name.as_str(), format!(".{}.new", self.limit.name));
        let stat = fstat(old)?;
        // A log writer that was killed may have left it over.
        let _ = unlinkat(&self.directory, partial.as_str(), AtFlags::empty());
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        let new = openat(&self.directory, partial.as_str(), APPEND | OFlags::CREATE | OFlags::EXCL, mode)?;
        let completed = fchown(&new, Some(owner(stat.st_uid)), Some(group(stat.st_gid)))
            .and_then(|()| fchmod(&new, mode))
            .and_then(|()| renameat(&self.directory, partial.as_str(), &self.directory, name));
        if let Err(errno) = completed {
            let _ = unlinkat(&self.directory, partial.as_str(), AtFlags::empty());
            return Err(errno.into());
        }
        Ok(new)
    }
}

fn owner(uid: u32) -> rustix::fs::Uid {
    rustix::fs::Uid::from_raw(uid)
}

fn group(gid: u32) -> rustix::fs::Gid {
    rustix::fs::Gid::from_raw(gid)
}

/// A log that was replaced. Its blocks are freed [`GRACE`] later: other processes have `O_PATH` descriptors of it, which
/// would keep them.
#[derive(Debug)]
pub(super) struct ReplacedLog {
    file: OwnedFd,
    at: Duration,
}

impl ReplacedLog {
    pub(super) fn new(file: OwnedFd) -> Self {
        Self { file, at: clock::monotonic() }
    }

    /// Returns its size. `None`: it has another name, because the kubelet has rotated it.
    pub(super) fn removed_size(&self) -> Option<u64> {
        let stat = fstat(self.file.as_fd()).ok()?;
        (stat.st_nlink == 0).then_some(stat.st_size as u64)
    }

    /// Whether its readers had time to read it.
    pub(super) fn is_expired(&self) -> bool {
        clock::monotonic().saturating_sub(self.at) >= GRACE
    }
}

impl Drop for ReplacedLog {
    fn drop(&mut self) {
        if self.removed_size().is_some() {
            let _ = ftruncate(&self.file, 0);
        }
    }
}

#[cfg(test)]
mod tests;
