//! Log messages on standard error, which is a file that the daemon opened.
//!
//! Writing a message must never stop the monitor. The file is on the tmpfs of the state directory, which may be full,
//! and a pipe in its place may be closed or never be read. The macros of the standard library panic if a write fails,
//! which would end the parent of every container of the node. The macros below shadow them in this crate, and drop what
//! cannot be written.

use std::fmt::Arguments;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::BorrowedFd,
    fs::{FileType, fstat, ftruncate},
};

/// Maximum length of the file in bytes.
const FILE_MAX: i64 = 1024 * 1024;
/// Maximum length of a line in bytes: what a writable pipe takes without blocking (`PIPE_BUF`, pipe(7)).
const LINE_MAX: usize = 4096;

/// Writes a line to standard error, or drops it. Never blocks or panics; shadows the macro of the standard library.
macro_rules! eprintln {
    ($($argument:tt)*) => { $crate::diagnostics::write(rustix::stdio::stderr(), format_args!($($argument)*)) };
}

/// Writes a line to standard output, or drops it. Never blocks or panics; shadows the macro of the standard library.
macro_rules! println {
    ($($argument:tt)*) => { $crate::diagnostics::write(rustix::stdio::stdout(), format_args!($($argument)*)) };
}

/// Writes one line, truncated to 4096 bytes.
pub(crate) fn write(file: BorrowedFd<'_>, line: Arguments<'_>) {
    let mut text = line.to_string().into_bytes();
    text.truncate(LINE_MAX - 1);
    text.push(b'\n');
    truncate_if_too_long(file);
    let mut writable = [PollFd::from_borrowed_fd(file, PollFlags::OUT)];
    if matches!(poll(&mut writable, Some(&Timespec::default())), Ok(1))
        && writable[0].revents().contains(PollFlags::OUT)
    {
        let _ = rustix::io::write(file, &text);
    }
}

/// Truncates the file if it is too long: it exists as long as the node runs, and is not rotated.
fn truncate_if_too_long(file: BorrowedFd<'_>) {
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
    fn messages_that_cannot_be_written_are_dropped() {
        let (reader, writer) = std::io::pipe().expect("pipe");
        for _ in 0..100 {
            // The pipe is never read and becomes full.
            super::write(writer.as_fd(), format_args!("{}", "x".repeat(5000)));
        }
        drop(reader);
        super::write(writer.as_fd(), format_args!("the reader is gone"));
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("open /dev/full");
        super::write(full.as_fd(), format_args!("the disk is full"));
    }
}
