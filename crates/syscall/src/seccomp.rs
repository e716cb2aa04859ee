//! Loads seccomp filters (seccomp(2)) and handles notifications (seccomp_unotify(2)).

use std::io;

use rustix::{
    fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
    process::Pid,
};

/// The size of one instruction (`struct sock_filter`), in bytes.
pub const INSTRUCTION_SIZE: usize = 8;

/// Loads a filter for the calling thread. Returns the listener if the flags contain `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
///
/// # Errors
/// `EACCES` without no_new_privs or `CAP_SYS_ADMIN`; `EINVAL` for a filter or flag that the kernel refuses, or for a
/// length that is not a multiple of the instruction size; `ENOMEM`.
pub fn load_filter(filter: &[u8], flags: u32) -> io::Result<Option<OwnedFd>> {
    let count = filter.len() / INSTRUCTION_SIZE;
    let Ok(length) = u16::try_from(count) else { return Err(io::Error::from_raw_os_error(libc::EINVAL)) };
    if count * INSTRUCTION_SIZE != filter.len() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut().cast() };
    // SAFETY: the kernel copies `length` instructions of eight bytes from `filter`, byte by byte, and writes nothing.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    match result {
        0 => Ok(None),
        fd if fd > 0 && u64::from(flags) & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 => {
            // SAFETY: with NEW_LISTENER a positive result is the descriptor of the new listener, which nothing else
            // owns.
            Ok(Some(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
        }
        // With TSYNC the result is the id of a thread that could not be synchronized.
        thread if thread > 0 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A system call that waits for a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The id of the notification, for the response.
    id: u64,
    /// The thread that made the call; `None` if it is not visible in the receiver's PID namespace.
    pub thread: Option<Pid>,
    /// The number of the call.
    pub call: i32,
    /// The arguments of the call.
    pub arguments: [u64; 6],
}

/// The response to a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// The kernel executes the call (`SECCOMP_USER_NOTIF_FLAG_CONTINUE`, Linux 5.5). Must not be used to implement a
    /// security policy: see the man page.
    Continue,
    /// The call returns this value.
    Return(i64),
    /// The call fails with this errno.
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

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct RawResponse {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// Waits for the next notification. Linux 5.0.
///
/// # Errors
/// `ENOENT`: the thread was killed in the meantime, or no process has the filter anymore; `EINTR`.
pub fn receive(listener: impl AsFd) -> io::Result<Notification> {
    const NOTIF_RECV: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl; // _IOWR('!', 0, struct seccomp_notif)
    let mut received = Received::default();
    // SAFETY: the descriptor is open for the call; the kernel fills the struct, which has its 80 bytes and outlives it.
    let result = unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), NOTIF_RECV, &raw mut received) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let Received { id, pid, call, arguments, .. } = received;
    let thread = i32::try_from(pid).ok().and_then(Pid::from_raw);
    Ok(Notification { id, thread, call, arguments })
}

/// Responds to a notification.
///
/// # Errors
/// `ENOENT`: the thread that made the call does not exist anymore.
pub fn respond(listener: impl AsFd, notification: &Notification, response: Response) -> io::Result<()> {
    const NOTIF_SEND: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl; // _IOWR('!', 1, struct seccomp_notif_resp)
    const CONTINUE: u32 = 1;
    let (value, error, flags) = match response {
        Response::Continue => (0, 0, CONTINUE),
        Response::Return(value) => (value, 0, 0),
        Response::Fail(errno) => (0, -errno, 0),
    };
    let response = RawResponse { id: notification.id, value, error, flags };
    // SAFETY: the descriptor is open for the call; the kernel reads the struct, which has its 24 bytes and outlives it.
    let result = unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), NOTIF_SEND, &raw const response) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
