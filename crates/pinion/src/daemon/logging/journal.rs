//! Whether standard error is the journal (systemd.exec(5), `$JOURNAL_STREAM`), and its priorities (sd-daemon(3)).

use std::os::fd::AsFd;

use rustix::fs::fstat;
use tracing::Level;

/// The journal puts the time before each line itself, and understands a priority in front of it.
pub(super) fn is_there(stream: impl AsFd) -> bool {
    let told = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    fstat(stream).is_ok_and(|stat| told == format!("{}:{}", stat.st_dev, stat.st_ino))
}

pub(super) fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        Level::DEBUG | Level::TRACE => "<7>",
    }
}
