//! The random number generator of the kernel. Source: random(4).

use std::{fs::OpenOptions, io, os::fd::AsRawFd};

/// Most bytes that are added at a time.
const BYTES_MAX: usize = 512;

/// `struct rand_pool_info`.
#[repr(C)]
struct PoolInfo {
    /// In bits.
    entropy_count: libc::c_int,
    /// In bytes.
    size: libc::c_int,
    bytes: [u8; BYTES_MAX],
}

/// Adds random bytes to the kernel's pool and has the generator use them from now on: what is only written to `/dev/urandom` changes
/// nothing that is read in the next minutes. At most 512 bytes are used. Requires CAP_SYS_ADMIN, and Linux 4.14 for the second
/// step.
///
/// # Errors
/// `EPERM` without the capability.
pub fn reseed(bytes: &[u8]) -> io::Result<()> {
    const RNDADDENTROPY: libc::c_ulong = 0x4008_5203;
    const RNDRESEEDCRNG: libc::c_ulong = 0x5207;
    let device = OpenOptions::new().write(true).open("/dev/urandom")?;
    let length = bytes.len().min(BYTES_MAX);
    let size = libc::c_int::try_from(length).map_err(io::Error::other)?;
    let mut info = PoolInfo { entropy_count: size * 8, size, bytes: [0; BYTES_MAX] };
    info.bytes[..length].copy_from_slice(&bytes[..length]);
    // SAFETY: the argument is a valid `struct rand_pool_info` with `size` bytes behind its header.
    check(unsafe { libc::ioctl(device.as_raw_fd(), RNDADDENTROPY, &raw const info) })?;
    // SAFETY: the call has no argument.
    check(unsafe { libc::ioctl(device.as_raw_fd(), RNDRESEEDCRNG) })
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_added() {
        reseed(&[7; 64]).expect("CAP_SYS_ADMIN");
        reseed(&[7; 2 * BYTES_MAX]).expect("the first bytes are used");
    }
}
