//! New mount namespaces: unshare(2) with `CLONE_NEWNS`.

use std::io;

use rustix::thread::UnshareFlags;

/// Moves the calling process, which must have a single thread, into a copy of its mount namespace.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`; `ENOSPC` at the limit of `/proc/sys/user/max_mnt_namespaces`.
pub fn unshare_mounts() -> io::Result<()> {
    // SAFETY: unshare is unsafe for CLONE_FILES, which unshares the descriptor table; CLONE_NEWNS does not.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    Ok(())
}
