//! Creates and identifies namespaces.
//!
//! Sources: unshare(2), setns(2), ioctl_nsfs(2), `SO_NETNS_COOKIE` in socket(7).

use std::io;

use rustix::{
    fd::{AsFd, AsRawFd},
    thread::UnshareFlags,
};

/// The kinds of namespaces that one thread of a multi-threaded program can leave without affecting other threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadNamespace {
    /// `CLONE_NEWNET`
    Network,
    /// `CLONE_NEWIPC`
    Ipc,
    /// `CLONE_NEWUTS`
    Uts,
}

/// Moves only the calling thread into a new namespace of this kind.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, `ENOSPC` at the limit of `/proc/sys/user/max_*_namespaces`.
pub fn unshare_thread(kind: ThreadNamespace) -> io::Result<()> {
    let flags = match kind {
        ThreadNamespace::Network => UnshareFlags::NEWNET,
        ThreadNamespace::Ipc => UnshareFlags::NEWIPC,
        ThreadNamespace::Uts => UnshareFlags::NEWUTS,
    };
    // SAFETY: unshare is unsafe for CLONE_FILES, which unshares the descriptor table; none of these flags does.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    Ok(())
}

/// Returns the id of a namespace, which is unique until the next boot (`NS_GET_ID`, Linux 6.18).
///
/// # Errors
/// `ENOTTY` on an older kernel or if `namespace` is not an nsfs file.
pub fn namespace_id(namespace: impl AsFd) -> io::Result<u64> {
    const NS_GET_ID: libc::Ioctl = 0x8008_b70d; // _IOR(0xb7, 13, __u64)
    let mut id = 0u64;
    // SAFETY: the descriptor is open for the call and the kernel writes eight bytes to `id`, which outlives it.
    let result = unsafe { libc::ioctl(namespace.as_fd().as_raw_fd(), NS_GET_ID, &raw mut id) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(id) }
}

/// Returns the cookie of a socket's network namespace, which equals its [`namespace_id`] (`SO_NETNS_COOKIE`, Linux
/// 5.14).
///
/// # Errors
/// `ENOPROTOOPT` on an older kernel.
pub fn socket_namespace_id(socket: impl AsFd) -> io::Result<u64> {
    const SO_NETNS_COOKIE: libc::c_int = 71;
    let mut id = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the call; the kernel writes at most `length` bytes to `id`; both outlive it.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut id).cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(id) }
}

/// Returns the kind of a namespace as its `CLONE_NEW*` flag (`NS_GET_NSTYPE`, Linux 4.11).
///
/// # Errors
/// `ENOTTY` if `namespace` is not an nsfs file.
pub fn namespace_kind(namespace: impl AsFd) -> io::Result<u32> {
    const NS_GET_NSTYPE: libc::Ioctl = 0xb703; // _IO(0xb7, 3)
    // SAFETY: the descriptor is open for the call; the request has no argument.
    let kind = unsafe { libc::ioctl(namespace.as_fd().as_raw_fd(), NS_GET_NSTYPE) };
    u32::try_from(kind).map_err(|_| io::Error::last_os_error())
}
