//! The root of a container without a mount namespace of its own is attached at the host's path. Until the container has a
//! record, what was there before is noted, so that whoever clears away a container that did not come to be can tell whether
//! its root was attached already: what else is mounted there is somebody else's.

use std::path::Path;

use rustix::{
    fs::{AtFlags, CWD, StatxFlags, readlinkat, statx, symlinkat},
    io::Errno,
};

use super::Folder;
use crate::failure::Failure;

/// A symlink whose target is the id of the mount that was there, a colon, and the path.
pub(super) const ROOT: &str = "root";

impl Folder {
    /// Before the container is made.
    pub(crate) fn note_root(&self, path: &Path) -> Result<(), Failure> {
        let noted = mount_at(path).and_then(|id| {
            let target = format!("{id}:{}", path.to_str().ok_or(Errno::ILSEQ)?);
            symlinkat(target, self.dir(), ROOT)
        });
        noted.map_err(|errno| Failure::io(format!("note what is mounted at the root {path:?}"), errno))
    }

    /// Takes off the root of a container that did not come to be, if it was attached.
    pub(crate) fn uncover_root(&self) {
        let Some((before, path)) = self.noted_root() else { return };
        if mount_at(path.as_ref()).is_ok_and(|now| now != before) {
            // What made this necessary is what is to be told.
            let _ = container::detach_root(path.as_ref());
        }
    }

    fn noted_root(&self) -> Option<(u64, String)> {
        let target = readlinkat(self.dir(), ROOT, Vec::new()).ok()?.into_string().ok()?;
        let (id, path) = target.split_once(':')?;
        Some((id.parse().ok()?, path.to_owned()))
    }
}

/// The id of the topmost mount at a path. Linux 5.8.
fn mount_at(path: &Path) -> Result<u64, Errno> {
    let found = statx(CWD, path, AtFlags::NO_AUTOMOUNT, StatxFlags::MNT_ID)?;
    let told = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    if told { Ok(found.stx_mnt_id) } else { Err(Errno::NOSYS) }
}
