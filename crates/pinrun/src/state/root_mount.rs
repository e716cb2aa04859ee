//! The root of a container without a mount namespace is attached at its path on the host. What was mounted there before
//! is saved until the container has a record, so that the call that removes a partially created container can determine
//! whether its root was attached: any other mount at that path is not the container's.

use std::path::Path;

use rustix::{
    fd::BorrowedFd,
    fs::{AtFlags, CWD, StatxFlags, readlinkat, statx, symlinkat},
    io::Errno,
};

use crate::failure::Failure;

/// A symlink whose target is a [`MountedDirectory`], a colon, and the path.
pub(super) const ROOT: &str = "root";

/// The mount and the directory to which a path leads.
#[derive(Debug, PartialEq, Eq)]
struct MountedDirectory {
    /// The mount id, as in mountinfo.
    mount: u64,
    /// Device and inode: the same for every mount of the directory.
    inode: String,
}

impl MountedDirectory {
    /// Looks up a path. Needs `STATX_MNT_ID` (Linux 5.8).
    fn at(path: &Path) -> Result<Self, Errno> {
        let stat = statx(CWD, path, AtFlags::NO_AUTOMOUNT, StatxFlags::MNT_ID | StatxFlags::INO)?;
        if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
            return Err(Errno::NOSYS);
        }
        let inode = format!("{}-{}-{}", stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        Ok(Self { mount: stat.stx_mnt_id, inode })
    }

    /// Reports whether this is the directory `before`, through another mount on top of the mount of `before`. Any other
    /// mount (an engine may have mounted a new root in the meantime) is not the container's.
    fn is_root_on_top_of(&self, before: &Self) -> bool {
        let table = syscall::proc_file::read("/proc/self/mountinfo").unwrap_or_default();
        let id_and_parent = format!("{} {} ", self.mount, before.mount);
        self.inode == before.inode
            && self.mount != before.mount
            && table.lines().any(|line| line.starts_with(&id_and_parent))
    }
}

/// Saves what is mounted at the root in the state directory `dir`.
pub(super) fn save(dir: BorrowedFd<'_>, path: &Path) -> Result<(), Failure> {
    let saved = MountedDirectory::at(path).and_then(|directory| {
        let path = path.to_str().ok_or(Errno::ILSEQ)?;
        symlinkat(format!("{}:{}:{path}", directory.mount, directory.inode), dir, ROOT)
    });
    saved.map_err(|errno| Failure::io(format!("record what is mounted at the root {path:?}"), errno))
}

/// Detaches the root that is saved in the state directory `dir`, if it was attached.
pub(super) fn detach(dir: BorrowedFd<'_>) {
    let Some((before, path)) = saved(dir) else { return };
    if MountedDirectory::at(path.as_ref()).is_ok_and(|now| now.is_root_on_top_of(&before)) {
        // The caller reports the error that made this necessary.
        let _ = container::detach_root(path.as_ref());
    }
}

fn saved(dir: BorrowedFd<'_>) -> Option<(MountedDirectory, String)> {
    let target = readlinkat(dir, ROOT, Vec::new()).ok()?.into_string().ok()?;
    let mut parts = target.splitn(3, ':');
    let directory = MountedDirectory { mount: parts.next()?.parse().ok()?, inode: parts.next()?.to_owned() };
    Some((directory, parts.next()?.to_owned()))
}
