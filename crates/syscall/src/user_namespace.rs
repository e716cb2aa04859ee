//! Finds the user namespace that owns another namespace: `NS_GET_USERNS` of ioctl_nsfs(2). Linux 4.9.

use std::io;

use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Opens the user namespace that owns `namespace`; for a user namespace, its parent.
///
/// # Errors
/// `EPERM`: the result is neither the caller's user namespace nor a descendant of it; `ENOTTY`: `namespace` is not an
/// nsfs file.
pub fn owning_user_namespace(namespace: impl AsFd) -> io::Result<OwnedFd> {
    const NS_GET_USERNS: libc::Ioctl = 0xb701; // _IO(0xb7, 1)
    // SAFETY: the descriptor is open for the call; the request has no argument.
    let fd = unsafe { libc::ioctl(namespace.as_fd().as_raw_fd(), NS_GET_USERNS) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor (close-on-exec); nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
