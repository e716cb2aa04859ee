use std::io::stderr;

use tracing_subscriber::EnvFilter;

use super::config::{Log, LogFormat};
use crate::Failure;

/// From here on, what is traced goes to standard error.
pub(crate) fn start(log: &Log) -> Result<(), Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::daemon(format!("log level {:?}: {error}", log.level));
    let filter = EnvFilter::try_new(directives(&log.level)).map_err(|error| wrong(&error))?;
    let lines = tracing_subscriber::fmt().with_writer(stderr).with_env_filter(filter);
    let started = match log.format {
        LogFormat::Human => lines.with_ansi(rustix::termios::isatty(stderr())).with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| wrong(&error))
}

/// Crates of ours: a bare level is meant for them. Those below (HTTP/2 frames, netlink) say more than anyone reads.
const OURS: [&str; 6] = ["pinion", "cri", "pod", "image", "network", "netns"];

/// `debug` → `warn,pinion=debug,cri=debug,…`; anything else is taken as it is written.
fn directives(level: &str) -> String {
    match level.contains(['=', ',']) {
        true => level.to_owned(),
        false => OURS.iter().fold("warn".to_owned(), |all, name| format!("{all},{name}={level}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_level_is_for_our_crates() {
        assert!(directives("debug").starts_with("warn,pinion=debug,cri=debug"));
        assert_eq!(directives("info,h2=trace"), "info,h2=trace");
        assert!(EnvFilter::try_new(directives("trace")).is_ok());
    }
}
