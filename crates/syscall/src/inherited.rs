//! Descriptors that a program found open when it started.

use std::io;

use rustix::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes over a descriptor that the parent left open, by its number, and marks it close-on-exec.
///
/// To be called once per number, early in `main`: from then on the returned value owns it.
///
/// # Errors
/// `EBADF` where nothing is open under that number; `EINVAL` for standard streams, which std owns.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: fcntl on a number that is not open fails with EBADF and touches nothing.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, was handed to this process by its parent, and no value of this program owns it yet.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A duplicate, close-on-exec, of a descriptor that was left open by its number; that one stays as it is, for a program
/// that may be executed next.
///
/// # Errors
/// `EBADF` where nothing is open under that number; `EMFILE`.
pub fn duplicate_inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl on a number that is not open fails with EBADF and touches nothing.
    let duplicate = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if duplicate < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fcntl just gave us this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(duplicate) })
}

/// Whether something is open under this number.
pub fn is_open(number: RawFd) -> bool {
    // SAFETY: fcntl on a number that is not open fails with EBADF and touches nothing.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

/// Closes every descriptor from `first` on: what a careless parent leaked. Linux 5.9.
///
/// To be called before the program opened anything of its own from that number on.
///
/// # Errors
/// `ENOSYS` on an older kernel, `EINVAL` for the standard streams.
pub fn close_inherited_from(first: RawFd) -> io::Result<()> {
    if first <= 2 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the caller opened nothing there (see above), so no owned descriptor is closed under its owner.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first as libc::c_uint, libc::c_uint::MAX, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
