//! Id-mapped mounts: mount_setattr(2) with `MOUNT_ATTR_IDMAP`, which maps the owners of files by a user namespace.

use std::io;

use rustix::fd::{AsFd, AsRawFd};

/// Applies the mappings of `user_namespace` to a detached mount; with `recursive`, also to the mounts below it. Linux
/// 5.12.
///
/// # Errors
/// `EINVAL`: the file system does not support it (on this kernel), the mount is attached or visible elsewhere, or the
/// namespace is the initial one; `EPERM`: the mount is id-mapped already, or the caller is not privileged over the file
/// system.
pub fn map_ids(mount: impl AsFd, user_namespace: impl AsFd, recursive: bool) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: user_namespace.as_fd().as_raw_fd() as u64,
    };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a C string, `attributes` outlives the call and its true size is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
