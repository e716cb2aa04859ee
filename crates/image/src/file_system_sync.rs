//! Syncs of the whole file system, each of which serves all callers that wait for one.
//!
//! One `syncfs` for a layer of ten thousand files costs little more than writing it; an fsync of each file costs one
//! journal commit per file. Layers that complete at the same time share one `syncfs`.
//!
//! The kernel reports an I/O error once per open file description, and only to those that were opened before it. So one
//! descriptor is used for the life of the store. A caller that wrote before an error that was reported to another
//! caller's sync must fail, too: see [`FileSystemSync::failed_syncs`].

use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags},
};

use crate::{Error, error::failed_to, hooks};

pub(crate) struct FileSystemSync {
    dir: PathBuf,
    file_system: OwnedFd,
    started: AtomicU64,
    /// Number of the last sync that succeeded.
    done: Mutex<u64>,
    failed_syncs: AtomicU64,
}

impl FileSystemSync {
    /// Opens the file system of `dir`.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file_system = rustix::fs::open(dir, flags, Mode::empty()).map_err(failed_to("open", dir))?;
        let (started, done, failed_syncs) = (AtomicU64::new(0), Mutex::new(0), AtomicU64::new(0));
        Ok(Self { dir: dir.to_owned(), file_system, started, done, failed_syncs })
    }

    /// Returns how many syncs have failed. It must be read before writing the data that a later
    /// [`FileSystemSync::sync`] puts on disk.
    pub(crate) fn failed_syncs(&self) -> u64 {
        self.failed_syncs.load(Ordering::SeqCst)
    }

    /// Waits until everything written to the file system before the call is on disk.
    ///
    /// # Errors
    /// This sync failed, or another one since `failed_syncs` was read.
    pub(crate) fn sync(&self, failed_syncs: u64) -> Result<(), Error> {
        let needed = self.started.load(Ordering::SeqCst) + 1;
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        // Not needed if a sync that started after our writes has completed in the meantime.
        if *done < needed {
            let number = self.started.fetch_add(1, Ordering::SeqCst) + 1;
            let synced = rustix::fs::syncfs(&self.file_system);
            hooks::reached("file system synced");
            if let Err(cause) = synced {
                self.failed_syncs.fetch_add(1, Ordering::SeqCst);
                return Err(failed_to("write to disk (syncfs)", &self.dir)(cause));
            }
            *done = number;
        }
        match self.failed_syncs() == failed_syncs {
            true => Ok(()),
            false => Err(Error::system(format!(
                "write to disk {}: the disk failed while the data was written; retry",
                self.dir.display()
            ))),
        }
    }
}
