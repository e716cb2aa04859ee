//! wait4(2): the end of a child with what it and its own children used.

use std::io;

use rustix::process::Pid;

/// What a process and those of its children that it waited for used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Wait status, as waitpid(2) gives it.
    pub status: i32,
    /// CPU time in user mode and in the kernel, microseconds.
    pub cpu_us: u64,
}

/// Waits for a child's end.
///
/// # Errors
/// `ECHILD`: no such child; `EINTR`.
pub fn wait_with_usage(pid: Pid) -> io::Result<Usage> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are to memory of the right size and type that outlives the call.
    let waited = unsafe { libc::wait4(pid.as_raw_nonzero().get(), &raw mut status, 0, usage.as_mut_ptr()) };
    if waited < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zero is valid for every field, and wait4 filled it.
    let usage = unsafe { usage.assume_init() };
    let micros = |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_usec.unsigned_abs();
    Ok(Usage { status, cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime) })
}
