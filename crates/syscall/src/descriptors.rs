//! Closes ranges of descriptors: close_range(2).

use std::io;

use rustix::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

/// Closes all descriptors of the calling process except those of `keep`, which is sorted in place. Linux 5.9.
///
/// Only for a newly cloned child that does not use any other descriptor afterwards: values that own closed descriptors
/// must be forgotten, not dropped.
///
/// # Errors
/// `ENOSYS` on an older kernel.
pub fn close_all_except(keep: &mut [RawFd]) -> io::Result<()> {
    keep.sort_unstable();
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

/// Closes a descriptor whose owner will be forgotten and not used, as with [`close_all_except`].
pub fn close_one(fd: BorrowedFd<'_>) {
    let number = fd.as_raw_fd() as u32;
    // This cannot fail, because the descriptor is open.
    let _ = close_range(number, number, 0);
}

/// Marks all descriptors from this number on as close-on-exec. Linux 5.11.
///
/// # Errors
/// `EINVAL` on an older kernel.
pub fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    close_range(first as u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)
}

/// Closes descriptors with one call for each run of consecutive numbers (Linux 5.9), else one by one.
pub fn close_all(fds: Vec<OwnedFd>) {
    let mut numbers: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    numbers.sort_unstable();
    for run in numbers.chunk_by(|one, next| one + 1 == *next) {
        // A kernel without the call fails at the first run.
        if close_range(run[0] as u32, run[run.len() - 1] as u32, 0).is_err() {
            return drop(fds);
        }
    }
    for fd in fds {
        // The descriptor is closed already.
        let _number = fd.into_raw_fd();
    }
}

fn close_range(first: u32, last: u32, flags: u32) -> io::Result<()> {
    // SAFETY: the call reads no memory. The callers must document that nothing uses a closed descriptor; a violation
    // results in EBADF, not in undefined behaviour.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read};

    use super::*;

    #[test]
    fn only_the_given_descriptors_are_closed() {
        let open = || File::open("/dev/zero").expect("open /dev/zero");
        let (first, second, other, third) = (open(), open(), open(), open());
        let numbers: Vec<RawFd> = [&first, &second, &third].map(AsRawFd::as_raw_fd).into();
        close_all(vec![third.into(), first.into(), second.into()]);
        // Another test's thread may have reused a number, but then for another file.
        let is_open =
            |fd: &RawFd| std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|to| to.ends_with("zero"));
        assert!(!numbers.iter().any(is_open));
        let mut byte = [1];
        (&other).read_exact(&mut byte).expect("read from the descriptor that was not closed");
        assert_eq!(byte, [0]);
    }
}
