//! A separate working directory for a thread.

use std::io;

use rustix::thread::UnshareFlags;

/// Gives the calling thread its own working directory, root and umask, which it does not share with other threads
/// (unshare(2), `CLONE_FS`), until the thread exits.
///
/// # Errors
/// `ENOMEM`.
pub fn unshare_working_directory() -> io::Result<()> {
    // SAFETY: unshare is unsafe for CLONE_FILES, which unshares the descriptor table; CLONE_FS does not.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }?;
    Ok(())
}
