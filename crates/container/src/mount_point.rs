//! Places for mounts in a root that somebody else mounts into (a restore by CRIU).

use std::ffi::CStr;

use rustix::fd::BorrowedFd;

use crate::{
    Error,
    destination::{self, Shape},
};

/// Makes what is missing of `path` inside `root`: directories (0755), and at its end a directory or an empty file
/// (0644). No symlink leads out of the root.
///
/// # Errors
/// [`ErrorKind::System`](crate::ErrorKind::System): what the kernel says, with the path.
pub fn find_or_make(root: BorrowedFd<'_>, path: &CStr, directory: bool) -> Result<(), Error> {
    let shape = if directory { Shape::Directory } else { Shape::File };
    destination::find_or_make(root, path, shape).map(drop)
}
