//! Execution domains: personality(2).

use std::io;

/// `PER_LINUX32` of `linux/personality.h`.
const PER_LINUX32: libc::c_ulong = 8;

/// Execution domains of the OCI specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Personality {
    /// `PER_LINUX`
    Linux,
    /// `PER_LINUX32`: uname(2) reports a 32-bit machine.
    Linux32,
}

/// Sets the execution domain of the calling process, which is preserved across execve.
///
/// # Errors
/// `EINVAL`.
pub fn set_personality(personality: Personality) -> io::Result<()> {
    let value = match personality {
        Personality::Linux => 0,
        Personality::Linux32 => PER_LINUX32,
    };
    // SAFETY: the call takes a number and reads no memory.
    match unsafe { libc::personality(value) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
