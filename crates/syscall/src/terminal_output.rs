//! Reading the master side of a terminal to its end.
//!
//! Source: tty_ioctl(4), `n_tty_read` of the kernel.

use rustix::{fd::AsFd, io::Errno};

/// Reads what programs wrote to a terminal, from its master. Returns 0 when no process has the terminal open anymore and
/// everything was read; the kernel reports that as `EIO`.
///
/// The kernel may report it too early: read(2) looks for output first, and then whether the terminal was closed, so it
/// misses what a process writes between both, immediately before it exits. A second read returns this. (Seen on Linux 6.18:
/// once for 40000 processes.)
///
/// # Errors
/// `EAGAIN` if the master does not block and output has not arrived yet; `EINTR`.
pub fn read_terminal(master: impl AsFd, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    match rustix::io::read(&master, &mut *buffer) {
        Err(Errno::IO) => {}
        result => return result,
    }
    match rustix::io::read(&master, buffer) {
        Err(Errno::IO) => Ok(0),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write};

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    use super::*;

    #[test]
    fn output_is_read_to_its_end() {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).and_then(|()| unlockpt(&master)).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = rustix::fs::open(&name, rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY, 0.into()).unwrap();
        File::from(slave).write_all(b"last").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(read_terminal(&master, &mut buffer).unwrap(), 4);
        assert_eq!(&buffer[..4], b"last");
        assert_eq!(read_terminal(&master, &mut buffer).unwrap(), 0);
    }
}
