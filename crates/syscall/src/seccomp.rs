//! seccomp(2): loading a filter.

use std::io;

use rustix::fd::{FromRawFd, OwnedFd};

/// Bytes of one instruction (`struct sock_filter`).
pub const INSTRUCTION_SIZE: usize = 8;

/// Loads a filter for the calling thread. With `SECCOMP_FILTER_FLAG_NEW_LISTENER` among the flags the listener is returned.
///
/// # Errors
/// `EACCES` without no_new_privs or `CAP_SYS_ADMIN`; `EINVAL` for a filter or flag the kernel refuses, or bytes that are no
/// whole instructions; `ENOMEM`.
pub fn load_filter(filter: &[u8], flags: u32) -> io::Result<Option<OwnedFd>> {
    let count = filter.len() / INSTRUCTION_SIZE;
    let Ok(length) = u16::try_from(count) else { return Err(io::Error::from_raw_os_error(libc::EINVAL)) };
    if count * INSTRUCTION_SIZE != filter.len() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut().cast() };
    // SAFETY: the kernel copies `length` instructions of eight bytes from `filter`, byte by byte, and writes nothing.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    match done {
        0 => Ok(None),
        fd if fd > 0 && u64::from(flags) & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 => {
            // SAFETY: a positive answer is the new listener's descriptor with NEW_LISTENER, which nothing else owns.
            Ok(Some(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
        }
        // With TSYNC: the id of a thread that could not be changed.
        thread if thread > 0 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        _ => Err(io::Error::last_os_error()),
    }
}
