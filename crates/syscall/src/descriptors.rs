//! Descriptor tables: close_range(2).

use std::io;

use rustix::fd::RawFd;

/// Closes every descriptor of the calling process but those of `keep`, which must be sorted. Linux 5.9.
///
/// For a freshly cloned child only, whose closure must not use any other descriptor afterwards: owners of the closed ones
/// must be forgotten, not dropped.
///
/// # Errors
/// `ENOSYS` on an older kernel.
pub fn close_all_but(keep: &[RawFd]) -> io::Result<()> {
    let mut next: u32 = 0;
    for fd in keep {
        let fd = *fd as u32;
        if fd > next {
            close_range(next, fd - 1, 0)?;
        }
        next = next.max(fd + 1);
    }
    close_range(next, u32::MAX, 0)
}

/// Marks every descriptor from this number on as close-on-exec. Linux 5.11.
///
/// # Errors
/// `EINVAL` on an older kernel.
pub fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    close_range(first as u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)
}

fn close_range(first: u32, last: u32, flags: u32) -> io::Result<()> {
    // SAFETY: the call reads no memory. That nothing uses a closed descriptor is the callers' documented duty; a violation
    // gives EBADF, not undefined behaviour.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
