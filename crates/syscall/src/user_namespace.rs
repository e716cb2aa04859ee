//! Which user namespace owns another namespace: `NS_GET_USERNS` of ioctl_nsfs(2). Linux 4.9.

use std::io;

use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// The user namespace that owns `namespace`; of a user namespace, its parent.
///
/// # Errors
/// `EPERM`: it is not the caller's own user namespace nor one below it; `ENOTTY`: `namespace` is no nsfs file.
pub fn owning_user_namespace(namespace: impl AsFd) -> io::Result<OwnedFd> {
    const NS_GET_USERNS: libc::Ioctl = 0xb701; // _IO(0xb7, 1)
    // SAFETY: the descriptor is open for the call; the request has no argument.
    let fd = unsafe { libc::ioctl(namespace.as_fd().as_raw_fd(), NS_GET_USERNS) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made this descriptor (close-on-exec) for us; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
