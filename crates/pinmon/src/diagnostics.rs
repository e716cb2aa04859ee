//! Messages for people go to standard error, which the daemon made a file of.
//!
//! Nothing here may stop the monitor: that file is on the state's tmpfs, which may be full, and a pipe in its place may
//! be closed or never be read. The macros of the standard library panic where a write fails, so that one of them would
//! end the parent of every container of the node; those below take their place in this crate, and drop what cannot be
//! written.

use std::fmt::Arguments;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::BorrowedFd,
    fs::{FileType, fstat, ftruncate},
};

/// Longest that file may be, bytes.
const FILE_MAX: i64 = 1024 * 1024;
/// Longest line, bytes: what a pipe takes without blocking once it is writable (`PIPE_BUF`, pipe(7)).
const LINE_MAX: usize = 4096;

/// Writes a line to standard error, or drops it. Never blocks and never panics; shadows the macro of the standard
/// library.
macro_rules! eprintln {
    ($($argument:tt)*) => { $crate::diagnostics::write(rustix::stdio::stderr(), format_args!($($argument)*)) };
}

/// Writes a line to standard output, or drops it; shadows the macro of the standard library.
macro_rules! println {
    ($($argument:tt)*) => { $crate::diagnostics::write(rustix::stdio::stdout(), format_args!($($argument)*)) };
}

/// Writes one line, cut to 4096 bytes.
pub(crate) fn write(file: BorrowedFd<'_>, line: Arguments<'_>) {
    let mut text = line.to_string().into_bytes();
    text.truncate(LINE_MAX - 1);
    text.push(b'\n');
    bound(file);
    let mut writable = [PollFd::from_borrowed_fd(file, PollFlags::OUT)];
    if matches!(poll(&mut writable, Some(&Timespec::default())), Ok(1))
        && writable[0].revents().contains(PollFlags::OUT)
    {
        let _ = rustix::io::write(file, &text);
    }
}

/// Empties the file when it is too long: it lives as long as the node, and nobody rotates it.
fn bound(file: BorrowedFd<'_>) {
    if let Ok(stat) = fstat(file)
        && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_size > FILE_MAX
    {
        let _ = ftruncate(file, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    #[test]
    fn what_cannot_be_written_is_dropped() {
        let (reader, writer) = std::io::pipe().expect("pipe");
        for _ in 0..100 {
            // Nobody reads: the pipe is full after some of them.
            super::write(writer.as_fd(), format_args!("{}", "x".repeat(5000)));
        }
        drop(reader);
        super::write(writer.as_fd(), format_args!("nobody is there"));
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("open /dev/full");
        super::write(full.as_fd(), format_args!("no space is left"));
    }
}
