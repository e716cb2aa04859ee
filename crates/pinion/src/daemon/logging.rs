use std::io::stderr;

use tracing_subscriber::{EnvFilter, Registry, fmt, layer::SubscriberExt, reload, util::SubscriberInitExt};

use super::config::{Log, LogFormat};
use crate::Failure;

/// Changes what is traced.
pub(crate) struct Control(reload::Handle<EnvFilter, Registry>);

impl Control {
    /// Traces this much from now on.
    pub(crate) fn set_level(&self, level: &str) -> Result<(), Failure> {
        self.0.reload(filter(level)?).map_err(|error| Failure::daemon(format!("log level {level:?}: {error}")))
    }
}

fn filter(level: &str) -> Result<EnvFilter, Failure> {
    EnvFilter::try_new(directives(level)).map_err(|error| Failure::daemon(format!("log level {level:?}: {error}")))
}

/// From here on, what is traced goes to standard error.
pub(crate) fn start(log: &Log) -> Result<Control, Failure> {
    let (filter, handle) = reload::Layer::new(filter(&log.level)?);
    let lines = fmt::layer().with_writer(stderr);
    let registry = tracing_subscriber::registry().with(filter);
    let started = match log.format {
        LogFormat::Human => {
            registry.with(lines.with_ansi(rustix::termios::isatty(stderr())).with_target(false)).try_init()
        }
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    started.map_err(|error| Failure::daemon(format!("start the log: {error}")))?;
    Ok(Control(handle))
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
