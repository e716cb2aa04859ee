//! The root of a container without a mount namespace of its own is attached at the host's path. Until the container has
//! a record, what was there before is noted, so that whoever clears away a container that did not come to be can tell
//! whether its root was attached already: what else is mounted there is somebody else's.

use std::path::Path;

use rustix::{
    fs::{AtFlags, CWD, StatxFlags, readlinkat, statx, symlinkat},
    io::Errno,
};

use super::Directory;
use crate::failure::Failure;

/// A symlink whose target is a [`Place`], a colon, and the path.
pub(super) const ROOT: &str = "root";

/// What a path leads to: mount, device and inode.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    mount: u64,
    /// The same directory has the same, through whatever mount.
    directory: String,
}

impl Place {
    /// Linux 5.8.
    fn of(path: &Path) -> Result<Self, Errno> {
        let found = statx(CWD, path, AtFlags::NO_AUTOMOUNT, StatxFlags::MNT_ID | StatxFlags::INO)?;
        if found.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
            return Err(Errno::NOSYS);
        }
        let directory = format!("{}-{}-{}", found.stx_dev_major, found.stx_dev_minor, found.stx_ino);
        Ok(Self { mount: found.stx_mnt_id, directory })
    }

    /// Whether this is the noted directory again, in a mount upon the one that was there. Anything else that is mounted
    /// there by now (an engine may have made a root anew) is not ours.
    fn is_our_root_upon(&self, before: &Self) -> bool {
        let table = syscall::proc_file::read("/proc/self/mountinfo").unwrap_or_default();
        let own = format!("{} {} ", self.mount, before.mount);
        self.directory == before.directory
            && self.mount != before.mount
            && table.lines().any(|line| line.starts_with(&own))
    }
}

impl Directory {
    /// Before the container is made.
    pub(crate) fn note_root(&self, path: &Path) -> Result<(), Failure> {
        let noted = Place::of(path).and_then(|place| {
            let path = path.to_str().ok_or(Errno::ILSEQ)?;
            symlinkat(format!("{}:{}:{path}", place.mount, place.directory), self.dir(), ROOT)
        });
        noted.map_err(|errno| Failure::io(format!("note what is mounted at the root {path:?}"), errno))
    }

    /// Takes off the root of a container that did not come to be, if it was attached.
    pub(crate) fn uncover_root(&self) {
        let Some((before, path)) = self.noted_root() else { return };
        if Place::of(path.as_ref()).is_ok_and(|now| now.is_our_root_upon(&before)) {
            // What made this necessary is what is to be told.
            let _ = container::detach_root(path.as_ref());
        }
    }

    fn noted_root(&self) -> Option<(Place, String)> {
        let target = readlinkat(self.dir(), ROOT, Vec::new()).ok()?.into_string().ok()?;
        let mut parts = target.splitn(3, ':');
        let place = Place { mount: parts.next()?.parse().ok()?, directory: parts.next()?.to_owned() };
        Some((place, parts.next()?.to_owned()))
    }
}
