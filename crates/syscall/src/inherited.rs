//! Descriptors that a program inherited from its parent.

use std::io;

use rustix::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes ownership of an inherited descriptor by its number, and marks it close-on-exec.
///
/// To be called once per number, early in `main`: from then on the returned value owns the descriptor.
///
/// # Errors
/// `EBADF` if the descriptor is not open; `EINVAL` for standard streams, which std owns.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: fcntl on a number that is not open fails with EBADF and touches nothing.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, was inherited from the parent, and no value of this program owns it yet.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Duplicates an inherited descriptor as close-on-exec. The original is not changed, for a program that may be executed
/// later.
///
/// # Errors
/// `EBADF` if the descriptor is not open; `EMFILE`.
pub fn duplicate_inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl on a number that is not open fails with EBADF and touches nothing.
    let duplicate = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if duplicate < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fcntl has just returned this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(duplicate) })
}

/// Reports whether the descriptor with this number is open.
pub fn is_open(number: RawFd) -> bool {
    // SAFETY: fcntl on a number that is not open fails with EBADF and touches nothing.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

/// Closes all descriptors from `first` on, which the parent has leaked. Linux 5.9.
///
/// To be called before the program opens files with these numbers.
///
/// # Errors
/// `ENOSYS` on an older kernel, `EINVAL` for the standard streams.
pub fn close_inherited_from(first: RawFd) -> io::Result<()> {
    if first <= 2 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: by the documented contract the program has not opened these descriptors, so none of them has an owner.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first as libc::c_uint, libc::c_uint::MAX, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
