//! The lock of a store: pins of one directory are made and removed one after the other, by whichever threads and
//! processes.

use std::{path::Path, time::Duration};

use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, StatxFlags, flock, openat, statx},
    io::Errno,
};
use syscall::file_lock::lock_briefly_held;

use crate::Error;

/// The lock is held for less than a millisecond; a process that was stopped may hold it forever.
const HELD_MAX: Duration = Duration::from_secs(10);

/// Holds the lock of a store until it is dropped. The lock is one of the open directory, so it ends with its holder, and
/// the processes that it forked and that have not executed a program.
#[derive(Debug)]
pub(crate) struct StoreLock {
    directory: OwnedFd,
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        // Closing the descriptor is not enough: a process that another thread forked in the meantime has it, too.
        let _ = flock(&self.directory, FlockOperation::Unlock);
    }
}

impl StoreLock {
    /// Locks the directory that a path leads to; returns `None` if it does not exist (anymore).
    ///
    /// # Errors
    /// `EWOULDBLOCK` if it was locked for ten seconds.
    pub(crate) fn acquire(store: &Path) -> Result<Option<Self>, Error> {
        let fail = |e: Errno| Error::path("lock", store, e);
        loop {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = match openat(CWD, store, flags, Mode::empty()) {
                Err(Errno::NOENT) => return Ok(None),
                opened => opened.map_err(fail)?,
            };
            lock_briefly_held(&directory, HELD_MAX).map_err(|e| Error::path("lock", store, e))?;
            // A group may have been mounted on the store or removed from it while this call waited.
            let locked = place(&directory, "", AtFlags::EMPTY_PATH).map_err(fail)?;
            match place(CWD, store, AtFlags::empty()) {
                Ok(present) if present == locked => return Ok(Some(Self { directory })),
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(fail(errno)),
            }
        }
    }
}

/// Returns the mount and the inode of a directory.
fn place(at: impl rustix::fd::AsFd, path: impl rustix::path::Arg, flags: AtFlags) -> rustix::io::Result<(u64, u64)> {
    // The id of a mount: Linux 5.8.
    let stat = statx(at, path, flags, StatxFlags::INO | StatxFlags::MNT_ID)?;
    Ok((stat.stx_mnt_id, stat.stx_ino))
}
