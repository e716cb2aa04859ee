//! pidfd_send_signal(2) with any signal number, including real-time signals (Linux 5.1).

use rustix::{
    fd::{AsFd, AsRawFd},
    io::Errno,
};

/// Sends a signal to the process of a pidfd. `ESRCH`: the process has exited; `EINVAL`: the signal does not exist.
pub fn pidfd_signal(pidfd: impl AsFd, signal: i32) -> Result<(), Errno> {
    let fd = pidfd.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed for the call, and the null siginfo makes the kernel fill in its own.
    let result =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, std::ptr::null::<libc::siginfo_t>(), 0u32) };
    match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
