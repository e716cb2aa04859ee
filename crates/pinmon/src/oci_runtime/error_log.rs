//! What a runtime writes to its log and to standard error, in a memfd: a pipe would hold up a runtime that writes much.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create},
};
use serde::Deserialize;

/// Maximum number of bytes that are read, from the end.
const READ_MAX: u64 = 16 * 1024;
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

impl ErrorLog {
    pub(super) fn create() -> io::Result<Self> {
        let file = memfd_create(c"oci-runtime-log", MemfdFlags::CLOEXEC)?;
        // The runtime opens it again as its log, and the lines there must not be overwritten by standard error.
        fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::APPEND)?;
        Ok(Self(file))
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Returns the error that the runtime reported. `None` if it reported none.
    pub(super) fn error(self) -> Option<String> {
        let mut file = File::from(self.0);
        let length = file.seek(SeekFrom::End(0)).ok()?;
        file.seek(SeekFrom::Start(length.saturating_sub(READ_MAX))).ok()?;
        let mut bytes = Vec::new();
        file.take(READ_MAX).read_to_end(&mut bytes).ok()?;
        error_in(&String::from_utf8_lossy(&bytes))
    }
}

/// Returns the last line of level error in a log of JSON lines, else the last line.
fn error_in(text: &str) -> Option<String> {
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
        let log = ErrorLog::create().expect("memfd");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&log.file()));
        let mut again = File::options().append(true).open(path).expect("open it again");
        again.write_all(b"{\"level\":\"error\",\"msg\":\"the cause\"}\n").expect("write");
        let mut first = File::from(log.file().try_clone_to_owned().expect("dup"));
        first.write_all(b"the same as text\n").expect("write");
        assert_eq!(log.error().as_deref(), Some("the cause"));
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
