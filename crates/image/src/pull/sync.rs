//! Putting a whole file system's data on disk, once for all who wait for it.
//!
//! One `syncfs` for a layer of ten thousand files costs little more than the writing itself; an fsync of each file costs a
//! journal commit each. Layers that end at the same time share one.

use std::{
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::fs::{Mode, OFlags};

use crate::{Error, error::at};

#[derive(Default)]
pub(crate) struct Sync {
    begun: AtomicU64,
    /// Number of the last sync that succeeded.
    done: Mutex<u64>,
}

impl Sync {
    /// Returns when everything written to the file system of `dir` before the call is on disk.
    pub(crate) fn sync(&self, dir: &Path) -> Result<(), Error> {
        let wanted = self.begun.load(Ordering::SeqCst) + 1;
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        if *done >= wanted {
            return Ok(()); // one that began after our writing has ended meanwhile
        }
        let mine = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(dir, flags, Mode::empty()).map_err(at("open", dir))?;
        rustix::fs::syncfs(&fd).map_err(at("write to disk (syncfs)", dir))?;
        *done = mine;
        Ok(())
    }
}
