//! Putting a whole file system's data on disk, once for all who wait for it.
//!
//! One `syncfs` for a layer of ten thousand files costs little more than the writing itself; an fsync of each file
//! costs a journal commit each. Layers that end at the same time share one.
//!
//! The kernel reports an I/O error once per open file description, and only to those that were opened before it: the
//! descriptor is the same for the life of the store. A caller that wrote before an error that another one's sync
//! reported must fail, too: see [`Sync::errors`].

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

use crate::{Error, error::at, hooks};

pub(crate) struct Sync {
    dir: PathBuf,
    file_system: OwnedFd,
    begun: AtomicU64,
    /// Number of the last sync that succeeded.
    done: Mutex<u64>,
    errors: AtomicU64,
}

impl Sync {
    /// For the file system of `dir`.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file_system = rustix::fs::open(dir, flags, Mode::empty()).map_err(at("open", dir))?;
        let (begun, done, errors) = (AtomicU64::new(0), Mutex::new(0), AtomicU64::new(0));
        Ok(Self { dir: dir.to_owned(), file_system, begun, done, errors })
    }

    /// How many syncs have failed; to be read before the writing that a later [`Sync::sync`] is to put on disk.
    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::SeqCst)
    }

    /// Returns when everything written to the file system before the call is on disk.
    ///
    /// # Errors
    /// This sync failed, or one since `errors` were counted.
    pub(crate) fn sync(&self, errors: u64) -> Result<(), Error> {
        let wanted = self.begun.load(Ordering::SeqCst) + 1;
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        // Unless one that began after our writing has ended meanwhile.
        if *done < wanted {
            let mine = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            let synced = rustix::fs::syncfs(&self.file_system);
            hooks::reached("file system synced");
            if let Err(cause) = synced {
                self.errors.fetch_add(1, Ordering::SeqCst);
                return Err(at("write to disk (syncfs)", &self.dir)(cause));
            }
            *done = mine;
        }
        match self.errors() == errors {
            true => Ok(()),
            false => Err(Error::system(format!(
                "write to disk {}: the disk failed while this was written; try again",
                self.dir.display()
            ))),
        }
    }
}
