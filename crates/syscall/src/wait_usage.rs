//! Waits for a child and returns its resource usage: wait4(2).

use std::io;

use rustix::process::Pid;

/// The resource usage of a process and of those of its children for which it has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The wait status, as in waitpid(2).
    pub status: i32,
    /// The CPU time in user and kernel mode, in µs.
    pub cpu_us: u64,
    /// Voluntary and involuntary context switches.
    pub context_switches: u64,
    /// Bytes written to block devices, as far as the file system accounts for them.
    pub written_bytes: u64,
}

/// Waits for a child to exit.
///
/// # Errors
/// `ECHILD`: the child does not exist; `EINTR`.
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
    Ok(Usage {
        status,
        cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
        context_switches: (usage.ru_nvcsw + usage.ru_nivcsw).unsigned_abs(),
        // Blocks of 512 bytes (getrusage(2)).
        written_bytes: usage.ru_oublock.unsigned_abs() * 512,
    })
}
