use std::io::stderr;

use tracing_subscriber::EnvFilter;

use super::config::{Log, LogFormat};
use crate::Failure;

/// From here on, what is traced goes to standard error.
pub(crate) fn start(log: &Log) -> Result<(), Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::daemon(format!("log level {:?}: {error}", log.level));
    let filter = EnvFilter::try_new(&log.level).map_err(|error| wrong(&error))?;
    let lines = tracing_subscriber::fmt().with_writer(stderr).with_env_filter(filter);
    let started = match log.format {
        LogFormat::Human => lines.with_ansi(rustix::termios::isatty(stderr())).with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| wrong(&error))
}
