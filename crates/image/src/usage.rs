//! What a folder takes on disk.

use std::collections::HashSet;

use rustix::{
    fd::{AsFd, BorrowedFd},
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
};

use crate::Usage;

/// A walk's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measure {
    /// Allocated bytes and inodes, the folder itself included.
    pub(crate) usage: Usage,
    /// Sum of the lengths of regular files.
    pub(crate) length: u64,
}

/// Walks a folder, without following links; a hard link counts once. What vanishes meanwhile is left out.
pub(crate) fn measure(folder: BorrowedFd<'_>) -> rustix::io::Result<Measure> {
    let mut measure = Measure::default();
    let mut linked = HashSet::new();
    measure.usage.inodes = 1;
    walk(folder, &mut measure, &mut linked)?;
    Ok(measure)
}

fn walk(folder: BorrowedFd<'_>, measure: &mut Measure, linked: &mut HashSet<(u64, u64)>) -> rustix::io::Result<()> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::Directory && stat.st_nlink > 1 && !linked.insert((stat.st_dev, stat.st_ino)) {
            continue;
        }
        measure.usage.inodes += 1;
        measure.usage.bytes += stat.st_blocks.unsigned_abs() * 512;
        match kind {
            FileType::RegularFile => measure.length += stat.st_size.unsigned_abs(),
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                if let Ok(below) = rustix::fs::openat(folder, name, flags, Mode::empty()) {
                    walk(below.as_fd(), measure, linked)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}
