//! Leaving the mount namespace one was started in.

use std::io;

use rustix::thread::UnshareFlags;

/// Moves the calling process, which must have one thread, into a copy of its mount namespace (unshare(2),
/// `CLONE_NEWNS`).
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`; `ENOSPC` at the limit of `/proc/sys/user/max_mnt_namespaces`.
pub fn unshare_mounts() -> io::Result<()> {
    // SAFETY: unshare is unsafe for CLONE_FILES, which divides the descriptor table; CLONE_NEWNS does not.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    Ok(())
}
