//! The levels of log lines: parses a configured level into a filter.

use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// Crates of Pinion: a level without a module applies to them, and their spans are traced. Other crates (HTTP/2,
/// netlink) log too much detail.
pub(super) const OURS: &[&str] =
    &["pinion", "cri", "streaming", "pod", "image", "network", "netns", "cgroup", "seccomp", "cdi", "nri", "otlp"];

/// Parses a configured level into a filter, or returns the error.
pub(super) fn parse(level: &str) -> Result<EnvFilter, String> {
    // EnvFilter takes an unknown word for the name of a module, and enables all levels for it.
    let words = level.split(',').map(str::trim).filter(|part| !part.contains(['=', '[']));
    if let Some(word) = words.into_iter().find(|word| word.parse::<LevelFilter>().is_err() || word.is_empty()) {
        return Err(format!("{word:?} is unknown"));
    }
    EnvFilter::try_new(directives(level)).map_err(|error| error.to_string())
}

/// Expands a level without a module to our crates: `debug` becomes `warn,pinion=debug,cri=debug,…`. Other filters are
/// returned unchanged.
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
    fn a_level_without_module_applies_to_our_crates() {
        assert!(directives("debug").starts_with("warn,pinion=debug,cri=debug"));
        assert_eq!(directives("info,h2=trace"), "info,h2=trace");
        assert!(EnvFilter::try_new(directives("trace")).is_ok());
    }
}
