//! Names of block devices, and the file system of the writable layers.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use rustix::fs::{major, minor, statvfs};

/// Maximum number of cached names.
const NAMES_MAX: usize = 4096;

/// The file system of the writable layers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filesystem {
    /// Device name, such as `/dev/vda1`.
    pub(super) device: String,
    /// Size in bytes.
    pub(super) size: u64,
    pub(super) inodes: u64,
    pub(super) inodes_free: u64,
}

impl Filesystem {
    /// Returns the file system of a directory; all fields are empty if it cannot be queried.
    pub(crate) fn of(directory: &Path) -> Self {
        let device = fs::metadata(directory).map(|directory| directory.dev()).unwrap_or(0);
        let Ok(stats) = statvfs(directory) else { return Self::default() };
        Self {
            device: Devices::default().name(major(device), minor(device)),
            size: stats.f_blocks.saturating_mul(stats.f_frsize),
            inodes: stats.f_files,
            inodes_free: stats.f_ffree,
        }
    }
}

/// A cache of device names by major and minor number.
#[derive(Default)]
pub(crate) struct Devices(Mutex<HashMap<(u32, u32), String>>);

impl Devices {
    /// Returns a name such as `/dev/vda`, or the numbers if the kernel has no such block device.
    pub(super) fn name(&self, major: u32, minor: u32) -> String {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = names.get(&(major, minor)) {
            return name.clone();
        }
        let link = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok();
        let name = link.as_deref().and_then(Path::file_name).map(|name| format!("/dev/{}", name.to_string_lossy()));
        let name = name.unwrap_or_else(|| format!("{major}:{minor}"));
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert((major, minor), name.clone());
        name
    }
}
