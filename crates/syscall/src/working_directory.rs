//! A working directory of a thread's own.

use std::io;

use rustix::thread::UnshareFlags;

/// Gives the calling thread a working directory, a root and a umask that it does not share with other threads
/// (unshare(2), `CLONE_FS`). They stay so until the thread ends.
///
/// # Errors
/// `ENOMEM`.
pub fn unshare_working_directory() -> io::Result<()> {
    // SAFETY: unshare is unsafe for CLONE_FILES, which divides the descriptor table; CLONE_FS does not.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }?;
    Ok(())
}
