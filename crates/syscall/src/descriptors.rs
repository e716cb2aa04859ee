//! Descriptor tables: close_range(2).

use std::io;

use rustix::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

/// Closes every descriptor of the calling process but those of `keep`, which is sorted for it. Linux 5.9.
///
/// For a freshly cloned child only, whose closure must not use any other descriptor afterwards: owners of the closed
/// ones must be forgotten, not dropped.
///
/// # Errors
/// `ENOSYS` on an older kernel.
pub fn close_all_but(keep: &mut [RawFd]) -> io::Result<()> {
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

/// Closes one whose owner will be forgotten and not used, as [`close_all_but`] does.
pub fn close_one(fd: BorrowedFd<'_>) {
    let number = fd.as_raw_fd() as u32;
    // It is open, so this cannot fail.
    let _ = close_range(number, number, 0);
}

/// Marks every descriptor from this number on as close-on-exec. Linux 5.11.
///
/// # Errors
/// `EINVAL` on an older kernel.
pub fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    close_range(first as u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)
}

/// Closes descriptors with one call for each run of successive numbers. Linux 5.9; else one by one.
pub fn close_all(fds: Vec<OwnedFd>) {
    let mut numbers: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    numbers.sort_unstable();
    for run in numbers.chunk_by(|one, next| one + 1 == *next) {
        // A kernel without the call fails the first time.
        if close_range(run[0] as u32, run[run.len() - 1] as u32, 0).is_err() {
            return drop(fds);
        }
    }
    for fd in fds {
        // It is closed already.
        let _number = fd.into_raw_fd();
    }
}

fn close_range(first: u32, last: u32, flags: u32) -> io::Result<()> {
    // SAFETY: the call reads no memory. That nothing uses a closed descriptor is the callers' documented duty; a
    // violation gives EBADF, not undefined behaviour.
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
    fn closes_those_and_no_others() {
        let open = || File::open("/dev/zero").expect("zero");
        let (first, second, kept, third) = (open(), open(), open(), open());
        let numbers: Vec<RawFd> = [&first, &second, &third].map(AsRawFd::as_raw_fd).into();
        close_all(vec![third.into(), first.into(), second.into()]);
        // Another test's thread may have got a number again, but then not for this file.
        let still = |fd: &RawFd| std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|to| to.ends_with("zero"));
        assert!(!numbers.iter().any(still));
        let mut byte = [1];
        (&kept).read_exact(&mut byte).expect("still open");
        assert_eq!(byte, [0]);
    }
}
