//! Space kept for removals: a file of zeros that is deleted when the disk is full.

use std::{
    fs::{self, File},
    path::PathBuf,
};

use rustix::fs::FallocateFlags;

/// Bytes: enough for a new copy of the index, and for the metadata of removals.
const SIZE: u64 = 16 << 20;
/// The reserve is made again when so many times its size is free.
const FREE: u64 = 8;

/// The file.
#[derive(Clone)]
pub(crate) struct Reserve(PathBuf);

impl Reserve {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Frees the space. Returns whether there was any.
    pub(crate) fn release(&self) -> bool {
        let released = fs::remove_file(&self.0).is_ok();
        if released {
            tracing::warn!(
                "the disk of the image store is full; using the reserve of {SIZE} bytes to remove what is not needed"
            );
        }
        released
    }

    /// Takes the space if the disk has plenty.
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
