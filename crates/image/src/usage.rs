//! Disk usage of directory trees.

use std::ffi::CStr;

use rustix::{
    fd::BorrowedFd,
    fs::{AtFlags, FileType, Stat},
    io::Errno,
};
use syscall::directory_tree::{Leave, Step, Visitor, walk};

use crate::Usage;

/// Walks of a tree that a container is changing, before an incomplete result is accepted.
const ATTEMPTS: u32 = 3;

/// The result of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measure {
    /// Allocated bytes and inodes, the directory itself included.
    pub(crate) usage: Usage,
    /// Sum of the lengths of regular files.
    pub(crate) length: u64,
    /// Whether the result is incomplete, because directories were moved, could not be opened, or are deeper than
    /// [`syscall::directory_tree::DEPTH_MAX`].
    pub(crate) partial: bool,
}

/// Measures a tree without following symlinks. A hard link counts once if all of its names are in the tree.
///
/// # Errors
/// A directory cannot be read.
pub(crate) fn measure(directory: BorrowedFd<'_>) -> rustix::io::Result<Measure> {
    let mut largest = Measure::default();
    for _ in 0..ATTEMPTS {
        let mut sum = Sum { inodes: ONE, ..Sum::default() };
        let moved = match walk(directory, &mut sum) {
            Ok(()) => false,
            Err(Errno::STALE) => true,
            Err(cause) => return Err(cause),
        };
        let measure = sum.measure(moved);
        if !moved {
            return Ok(measure);
        }
        if measure.usage.inodes > largest.usage.inodes {
            largest = measure;
        }
    }
    Ok(largest)
}

/// Unit of the sums. A file with n names counts 1/n at each of them, because a set of the inodes seen would grow with
/// the number of files that a container creates.
const ONE: u128 = 1 << 64;

#[derive(Default)]
struct Sum {
    inodes: u128,
    bytes: u128,
    length: u128,
    partial: bool,
}

impl Sum {
    fn add(&mut self, stat: &Stat) {
        let names = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => 1,
            _ => u128::from(stat.st_nlink).max(1),
        };
        let share = ONE / names;
        let add = |sum: &mut u128, value: u64| *sum = sum.saturating_add(u128::from(value).saturating_mul(share));
        add(&mut self.inodes, 1);
        add(&mut self.bytes, stat.st_blocks.unsigned_abs().saturating_mul(512));
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            add(&mut self.length, stat.st_size.unsigned_abs());
        }
    }

    fn measure(&self, moved: bool) -> Measure {
        let rounded = |sum: u128| u64::try_from(sum.saturating_add(ONE / 2) / ONE).unwrap_or(u64::MAX);
        Measure {
            usage: Usage { bytes: rounded(self.bytes), inodes: rounded(self.inodes) },
            length: rounded(self.length),
            partial: moved || self.partial,
        }
    }
}

impl Visitor for Sum {
    fn file(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
        // A file that was removed in the meantime takes no space.
        if let Ok(stat) = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            self.add(&stat);
        }
        Ok(())
    }

    fn enter(&mut self, parent: BorrowedFd<'_>, name: &CStr, deep: bool) -> rustix::io::Result<Step> {
        let Ok(stat) = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(Step::Skip) };
        self.add(&stat);
        self.partial |= deep;
        Ok(if deep { Step::Skip } else { Step::Descend })
    }

    fn leave(&mut self, _: BorrowedFd<'_>, _: &CStr) -> rustix::io::Result<Leave> {
        Ok(Leave::Done)
    }

    fn unreadable(&mut self, _: &CStr, _: Errno) -> rustix::io::Result<()> {
        self.partial = true;
        Ok(())
    }
}
