//! Block devices and file systems by the names that people know.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use rustix::fs::{major, minor, statvfs};

/// Most names that are kept.
const MOST: usize = 4096;

/// The file system of the writable layers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filesystem {
    /// `/dev/vda1`
    pub(super) device: String,
    /// Bytes.
    pub(super) size: u64,
    pub(super) inodes: u64,
    pub(super) inodes_free: u64,
}

impl Filesystem {
    /// Of the directory; nothing where it cannot be asked.
    pub(crate) fn of(directory: &Path) -> Self {
        let device = fs::metadata(directory).map(|directory| directory.dev()).unwrap_or(0);
        let Ok(figures) = statvfs(directory) else { return Self::default() };
        Self {
            device: Devices::default().name(major(device), minor(device)),
            size: figures.f_blocks.saturating_mul(figures.f_frsize),
            inodes: figures.f_files,
            inodes_free: figures.f_ffree,
        }
    }
}

/// Names by numbers, looked up once.
#[derive(Default)]
pub(crate) struct Devices(Mutex<HashMap<(u32, u32), String>>);

impl Devices {
    /// `/dev/vda`; the numbers themselves for one that the kernel has no block device for.
    pub(super) fn name(&self, major: u32, minor: u32) -> String {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = names.get(&(major, minor)) {
            return name.clone();
        }
        let link = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok();
        let name = link.as_deref().and_then(Path::file_name).map(|name| format!("/dev/{}", name.to_string_lossy()));
        let name = name.unwrap_or_else(|| format!("{major}:{minor}"));
        if names.len() >= MOST {
            names.clear();
        }
        names.insert((major, minor), name.clone());
        name
    }
}
