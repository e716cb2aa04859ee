//! mount_setattr(2) with `MOUNT_ATTR_IDMAP`: a mount that shows its files' owners through a user namespace's mappings.

use std::io;

use rustix::fd::{AsFd, AsRawFd};

/// Gives a detached mount the mappings of `user_namespace`; with `recursive`, all below it too. Linux 5.12.
///
/// # Errors
/// `EINVAL`: the file system cannot (or not on this kernel), the mount is attached or visible elsewhere, or the
/// namespace is the initial one; `EPERM`: it is idmapped already, or no right over the file system.
pub fn map_ids(mount: impl AsFd, user_namespace: impl AsFd, recursive: bool) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: user_namespace.as_fd().as_raw_fd() as u64,
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a C string, `attributes` outlives the call and its true size is given.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
