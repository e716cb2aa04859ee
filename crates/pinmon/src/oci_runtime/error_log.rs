//! What a runtime writes to its log and to standard error: a file, because a pipe would hold up a runtime that writes
//! much, on a tmpfs of limited size, which is mounted nowhere.

use std::{fs::File, io, os::unix::fs::FileExt};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{Mode, OFlags, openat},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen},
};
use serde::Deserialize;

/// Maximum number of bytes that are read, from the end.
const READ_MAX: u64 = 16 * 1024;
/// Size of the file system.
const TMPFS_SIZE: &str = "1m";
/// Maximum number of bytes of an error.
const ERROR_MAX: usize = 1024;

/// The log of one command.
pub(super) struct ErrorLog(OwnedFd);

/// A line of a log in the format `json`.
#[derive(Deserialize)]
struct Line {
    level: String,
    msg: String,
}

/// The file system of the logs of all commands. Its memory is limited, so a runtime that writes without end only loses
/// its own messages and those of commands that run at the same time.
#[derive(Default)]
pub(super) struct ErrorLogs(Option<OwnedFd>);

impl ErrorLogs {
    /// Creates the log of a command.
    pub(super) fn create(&mut self) -> io::Result<ErrorLog> {
        let directory = match self.0.take() {
            Some(directory) => directory,
            None => make_tmpfs()?,
        };
        // The runtime opens it again as its log, and the lines there must not be overwritten by standard error.
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::APPEND | OFlags::CLOEXEC;
        let file = openat(&directory, ".", flags, Mode::RUSR | Mode::WUSR);
        self.0 = Some(directory);
        Ok(ErrorLog(file?))
    }
}

/// Creates the file system for logs. Linux 5.2.
fn make_tmpfs() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [("source", "oci-runtime-logs"), ("size", TMPFS_SIZE), ("mode", "0700")] {
        fsconfig_set_string(&context, key, value)?;
    }
    fsconfig_create(&context)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

impl ErrorLog {
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Returns the error that the runtime reported. `None` if it reported none.
    pub(super) fn error(self) -> Option<String> {
        let file = File::from(self.0);
        let start = file.metadata().ok()?.len().saturating_sub(READ_MAX);
        let mut bytes = vec![0; READ_MAX as usize];
        let length = read_shared(&file, start, &mut bytes).ok()?;
        error_in(&String::from_utf8_lossy(&bytes[..length]))
    }
}

/// Reads from a position up to the end of the buffer or of the file. A runtime shares the file offset, and may keep its
/// lock for as long as a write of its own takes: lseek(2) and read(2) wait for that lock, pread(2) does not.
pub(super) fn read_shared(file: &File, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read_at(&mut buffer[length..], position + length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    Ok(length)
}

/// Returns the last line of level error in a log of JSON lines, else the last line.
pub(super) fn error_in(text: &str) -> Option<String> {
    let is_error = |line: &Line| matches!(line.level.as_str(), "error" | "fatal" | "panic");
    let json = text.lines().rev().filter_map(|line| serde_json::from_str::<Line>(line).ok()).find(is_error);
    let plain = || text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
    let mut error = json.map(|line| line.msg).or_else(plain)?;
    error.retain(|character| !character.is_control());
    error.truncate(error.floor_char_boundary(ERROR_MAX));
    Some(error)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn two_writers_do_not_overwrite_each_other() {
        let mut logs = ErrorLogs::default();
        let log = logs.create().expect("a log");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&log.file()));
        let mut again = File::options().append(true).open(path).expect("open it again");
        again.write_all(b"{\"level\":\"error\",\"msg\":\"the cause\"}\n").expect("write");
        let mut first = File::from(log.file().try_clone_to_owned().expect("dup"));
        first.write_all(b"the same as text\n").expect("write");
        assert_eq!(log.error().as_deref(), Some("the cause"));
    }

    #[test]
    fn a_runtime_that_writes_without_end_fills_only_the_file_system_of_logs() {
        let mut logs = ErrorLogs::default();
        let log = logs.create().expect("a log");
        let mut file = File::from(log.file().try_clone_to_owned().expect("dup"));
        file.write_all(b"the cause\n").expect("write");
        let mut written = 0;
        let line = [b'\n'; 4096];
        let full = loop {
            match file.write(&line) {
                Ok(length) => written += length,
                Err(error) => break error,
            }
            assert!(written < 4 << 20, "the log is not limited");
        };
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        drop((file, log));
        assert!(logs.create().is_ok_and(|log| log.file().as_fd().try_clone_to_owned().is_ok()), "it is free again");
    }

    #[test]
    fn the_error_is_the_last_one_in_the_log() {
        let log = "{\"level\":\"warning\",\"msg\":\"old\"}\n{\"level\":\"error\",\"msg\":\"exec: \\\"x\\\" not found\"}\n\
                   {\"level\":\"debug\",\"msg\":\"bye\"}\n";
        assert_eq!(error_in(log).as_deref(), Some("exec: \"x\" not found"));
        assert_eq!(error_in("first\n\x1b[31mlast\n\n").as_deref(), Some("[31mlast"));
        assert_eq!(error_in("\n"), None);
        assert_eq!(error_in(&"ä".repeat(2000)).map(|error| error.len()), Some(ERROR_MAX));
    }
}
