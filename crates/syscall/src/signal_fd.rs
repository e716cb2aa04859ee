//! Reads signals from a descriptor: signalfd(2).

use std::{io, mem, ptr};

use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Blocked signals of this thread, which are read from a descriptor (non-blocking, close-on-exec).
///
/// Children inherit the signal mask: a child must clear it before execve.
#[derive(Debug)]
pub struct SignalFd {
    file: OwnedFd,
}

impl SignalFd {
    /// Blocks these signals and opens a descriptor for them.
    ///
    /// # Errors
    /// `EINVAL`: a signal does not exist; `EMFILE`.
    pub fn block(signals: &[i32]) -> io::Result<Self> {
        // SAFETY: sigset_t is plain data; sigemptyset initializes it before any other use.
        let mut set: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: `set` is a valid sigset_t for all these calls, and the old mask is not requested.
        let raw = unsafe {
            libc::sigemptyset(&mut set);
            for signal in signals {
                if libc::sigaddset(&mut set, *signal) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &set, ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd has just returned this descriptor; nothing else owns it.
        Ok(Self { file: unsafe { OwnedFd::from_raw_fd(raw) } })
    }

    /// Returns the number of the next signal, or `None` if none is pending.
    ///
    /// # Errors
    /// Those of read(2).
    pub fn read(&self) -> io::Result<Option<i32>> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.file, &mut info) {
            // ssi_signo is the first member.
            Ok(n) if n == info.len() => Ok(Some(u32::from_ne_bytes([info[0], info[1], info[2], info[3]]) as i32)),
            Ok(n) => Err(io::Error::other(format!("signalfd returned {n} bytes"))),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
