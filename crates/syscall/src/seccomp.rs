//! seccomp(2): loading a filter, and answering for one (seccomp_unotify(2)).

use std::io;

use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Bytes of one instruction (`struct sock_filter`).
pub const INSTRUCTION_SIZE: usize = 8;

/// Loads a filter for the calling thread. With `SECCOMP_FILTER_FLAG_NEW_LISTENER` among the flags the listener is
/// returned.
///
/// # Errors
/// `EACCES` without no_new_privs or `CAP_SYS_ADMIN`; `EINVAL` for a filter or flag the kernel refuses, or bytes that
/// are no whole instructions; `ENOMEM`.
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

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// To be answered by it.
    id: u64,
    /// Who called, in the receiver's PID namespace.
    pub pid: u32,
    /// Number of the call.
    pub call: i32,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// What becomes of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel does it (`SECCOMP_USER_NOTIF_FLAG_CONTINUE`, Linux 5.5). No means of security: see the man page.
    Continue,
    /// It returns this.
    Return(i64),
    /// It fails with this errno.
    Fail(i32),
}

/// `struct seccomp_notif` with its `struct seccomp_data`.
#[derive(Default)]
#[repr(C)]
struct Received {
    id: u64,
    pid: u32,
    flags: u32,
    call: i32,
    architecture: u32,
    instruction: u64,
    arguments: [u64; 6],
}

/// `struct seccomp_notif_resp`
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// Waits for the next call. Linux 5.0.
///
/// # Errors
/// `ENOENT`: the caller was killed meanwhile, or nobody has the filter any more; `EINTR`.
pub fn receive(listener: impl AsFd) -> io::Result<Notification> {
    const NOTIF_RECV: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl; // _IOWR('!', 0, struct seccomp_notif)
    let mut received = Received::default();
    // SAFETY: the descriptor is open for the call; the kernel fills the struct, which has its 80 bytes and outlives it.
    let done = unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), NOTIF_RECV, &raw mut received) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let Received { id, pid, call, arguments, .. } = received;
    Ok(Notification { id, pid, call, arguments })
}

/// Answers a call.
///
/// # Errors
/// `ENOENT`: who called is gone.
pub fn answer(listener: impl AsFd, notification: &Notification, answer: Answer) -> io::Result<()> {
    const NOTIF_SEND: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl; // _IOWR('!', 1, struct seccomp_notif_resp)
    const CONTINUE: u32 = 1;
    let (value, error, flags) = match answer {
        Answer::Continue => (0, 0, CONTINUE),
        Answer::Return(value) => (value, 0, 0),
        Answer::Fail(errno) => (0, -errno, 0),
    };
    let response = Response { id: notification.id, value, error, flags };
    // SAFETY: the descriptor is open for the call; the kernel reads the struct, which has its 24 bytes and outlives it.
    let done = unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), NOTIF_SEND, &raw const response) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
