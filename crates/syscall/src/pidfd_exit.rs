//! The exit status of a process from its pidfd: the `PIDFD_GET_INFO` ioctl.

use std::io;

use rustix::fd::{AsFd, AsRawFd, BorrowedFd};

/// The exit information of `PIDFD_GET_INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidfdExit {
    /// The process is running, or has exited and was not reaped yet.
    NotReaped,
    /// The process has exited and was reaped; contains its wait status as in waitpid(2).
    Reaped(i32),
    /// The kernel does not have the status, or not anymore.
    Unknown,
}

/// Returns the wait status of a process that another process has reaped. Linux 6.15; the pidfd must have been opened
/// before the process was reaped.
///
/// # Errors
/// Those of the ioctl, except `ENOTTY` and `EINVAL` of an older kernel, for which the result is `Ok(Unknown)`.
pub fn pidfd_exit(pidfd: impl AsFd) -> io::Result<PidfdExit> {
    // The kernel looks up the status first and then the process. If the process is reaped in between, the result is
    // ESRCH, although the status is available by then.
    let outcome = match get_info(pidfd.as_fd()) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => get_info(pidfd.as_fd()),
        outcome => outcome,
    };
    match outcome {
        // The process does not exist and the kernel has no status, or the kernel does not support the ioctl.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOTTY | libc::EINVAL)) => {
            Ok(PidfdExit::Unknown)
        }
        outcome => outcome,
    }
}

fn get_info(pidfd: BorrowedFd<'_>) -> io::Result<PidfdExit> {
    // Version 0 of struct pidfd_info: mask u64, cgroupid u64, eleven u32 (pid … fsgid), exit_code i32.
    const SIZE: usize = 64;
    const EXIT_CODE: usize = 60;
    const INFO_EXIT: u64 = 1 << 3;
    const PIDFD_GET_INFO: libc::Ioctl = 0xc040_ff0b; // _IOWR(0xff, 11, struct pidfd_info)
    #[repr(C, align(8))]
    struct Info([u8; SIZE]);
    let mut info = Info([0; SIZE]);
    info.0[..8].copy_from_slice(&INFO_EXIT.to_ne_bytes());
    // SAFETY: the kernel reads and writes SIZE bytes (the size is part of the request number) of `info`, aligned to 8.
    if unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let word = |at: usize| [info.0[at], info.0[at + 1], info.0[at + 2], info.0[at + 3]];
    let mask = u64::from_ne_bytes(std::array::from_fn(|i| info.0[i]));
    if mask & INFO_EXIT == 0 {
        return Ok(PidfdExit::NotReaped);
    }
    Ok(PidfdExit::Reaped(i32::from_ne_bytes(word(EXIT_CODE))))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[test]
    fn the_status_is_available_after_the_process_is_reaped() {
        let mut child = Command::new("/bin/sh").args(["-c", "exit 7"]).spawn().expect("spawn");
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("pidfd");
        assert_eq!(pidfd_exit(&pidfd).expect("ioctl"), PidfdExit::NotReaped);
        child.wait().expect("wait");
        assert_eq!(pidfd_exit(&pidfd).expect("ioctl"), PidfdExit::Reaped(7 << 8));
    }

    #[test]
    fn the_status_is_never_unknown_while_the_process_is_reaped() {
        for _ in 0..2000 {
            let mut child = Command::new("/bin/true").spawn().expect("spawn");
            let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("pidfd");
            let reaper = std::thread::spawn(move || child.wait().expect("wait"));
            while match pidfd_exit(&pidfd).expect("ioctl") {
                PidfdExit::NotReaped => true,
                PidfdExit::Reaped(status) => status != 0,
                PidfdExit::Unknown => panic!("the status is unknown"),
            } {}
            reaper.join().expect("join the reaper");
        }
    }
}
