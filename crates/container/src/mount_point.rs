//! Mount points in a root whose mounts another program makes (CRIU at restore).

use std::ffi::CStr;

use rustix::fd::BorrowedFd;

use crate::{
    Error,
    destination::{self, Shape},
};

/// Creates the missing components of `path` inside `root`: directories (0755), and as the last one a directory or an
/// empty file (0644). Symlinks are resolved inside the root.
///
/// # Errors
/// [`ErrorKind::System`](crate::ErrorKind::System): the kernel's error, with the path.
pub fn ensure(root: BorrowedFd<'_>, path: &CStr, directory: bool) -> Result<(), Error> {
    let shape = if directory { Shape::Directory } else { Shape::File };
    destination::find_or_make(root, path, shape).map(drop)
}
