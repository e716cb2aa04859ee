//! Files that containers get descriptors of.

use std::path::Path;

use rustix::{
    fd::OwnedFd,
    fs::CWD,
    mount::{MountAttrFlags, MountPropagationFlags, OpenTreeFlags, open_tree},
};
use syscall::mount_attributes::MountAttributes;

use crate::{Error, error::failed};

/// Clones the mount of a file or directory, detached and read-only: no process that gets the descriptor, or another one
/// from it, can write. Linux 5.12.
pub(super) fn read_only_clone(path: &Path) -> Result<OwnedFd, Error> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, path, flags).map_err(failed(format_args!("clone {}", path.display())))?;
    let attributes = MountAttributes {
        set: MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
        propagation: Some(MountPropagationFlags::PRIVATE),
        ..MountAttributes::default()
    };
    attributes.apply(&tree, false).map_err(failed(format_args!("make the clone of {} read-only", path.display())))?;
    Ok(tree)
}
