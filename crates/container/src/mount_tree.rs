//! Clones of the host's mounts, and where they are attached: open_tree and move_mount.

use std::ffi::CStr;

use rustix::{
    fd::{BorrowedFd, OwnedFd},
    fs::CWD,
    io::Errno,
    mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree},
};

use crate::{Error, error::During};

/// Mount point for file systems that are mounted temporarily to clone parts of them: in the child's private mount
/// namespace, below the old root, which is dropped before any process sees the container's root. The procfs there is
/// already open by descriptor.
pub(crate) const SCRATCH: &CStr = c"/proc";

/// Clones the mount at `path` of the host, detached.
pub(crate) fn clone_host_mount(path: &CStr, recursive: bool) -> Result<OwnedFd, Error> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    flags.set(OpenTreeFlags::AT_RECURSIVE, recursive);
    open_tree(CWD, path, flags).during(|| format!("clone the host's mount {path:?}"))
}

/// Attaches a detached mount over `destination`.
pub(crate) fn attach(tree: BorrowedFd<'_>, destination: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, c"", destination, c"", flags)
}
