//! Detects whether standard error is the systemd journal (systemd.exec(5), `$JOURNAL_STREAM`), and maps log levels to
//! its priorities (sd-daemon(3)).

use std::os::fd::AsFd;

use rustix::fs::fstat;
use tracing::Level;

/// Whether the stream is connected to the journal, which adds the time to each line and parses a priority prefix.
pub(super) fn is_journal(stream: impl AsFd) -> bool {
    let journal = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    fstat(stream).is_ok_and(|stat| journal == format!("{}:{}", stat.st_dev, stat.st_ino))
}

pub(super) fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        Level::DEBUG | Level::TRACE => "<7>",
    }
}
