//! Space that is reserved for removals: a file that is deleted when the disk is full.

use std::{
    fs::{self, File},
    path::PathBuf,
};

use rustix::fs::FallocateFlags;

/// Size in bytes: enough for a new copy of the index, and for the metadata of removals.
const SIZE: u64 = 16 << 20;
/// The reserve is allocated again when this many times its size is free.
const FREE: u64 = 8;

/// The reserve file.
#[derive(Clone)]
pub(crate) struct Reserve(PathBuf);

impl Reserve {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Deletes the reserve. Returns whether there was one.
    pub(crate) fn release(&self) -> bool {
        let released = fs::remove_file(&self.0).is_ok();
        if released {
            tracing::warn!("the disk of the image store is full; using the reserve of {SIZE} bytes for removals");
        }
        released
    }

    /// Allocates the reserve if the disk has enough free space.
    pub(crate) fn refill(&self) {
        let Some(directory) = self.0.parent() else { return };
        let free = rustix::fs::statvfs(directory).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
        if free < SIZE * FREE || fs::metadata(&self.0).is_ok_and(|meta| meta.len() == SIZE) {
            return;
        }
        let filled = File::create(&self.0)
            .map_err(drop)
            .and_then(|file| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, SIZE).map_err(drop));
        if filled.is_err() {
            let _ = fs::remove_file(&self.0);
        }
    }
}
