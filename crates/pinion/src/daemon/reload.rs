//! Applies a new configuration to the running daemon, as a whole or not at all.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{config::Config, engine::changeable, logging, metrics};
use crate::Failure;

/// Keys, or prefixes of keys, that can be changed while the daemon runs. Every other key requires a restart.
const CHANGEABLE: &[&str] = &["log.", "metrics.", "tracing.", "network.pool", "cdi.", "upgrade.", "registries."];

/// The parts of the daemon that a configuration is applied to.
pub(super) struct Parts<'a> {
    pub(super) engine: &'a pod::Engine,
    pub(super) log: &'a logging::Control,
    pub(super) metrics: &'a metrics::Endpoint,
}

/// The name of a part and the function that applies a configuration to it. A function that fails changes nothing.
type Step = (&'static str, fn(&Parts<'_>, &Config) -> Result<(), Failure>);

/// The steps in their order. A step is rolled back by applying the previous configuration.
const STEPS: &[Step] = &[
    ("log", |daemon, config| daemon.log.apply(&config.log)),
    ("tracing", |daemon, config| daemon.log.trace(&config.tracing)),
    ("metrics", |daemon, config| daemon.metrics.listen(config.metrics.address).map(drop)),
    ("engine", |daemon, config| {
        daemon.engine.reconfigure(changeable(config)).map_err(|error| Failure::daemon(error.to_string()))
    }),
];

/// Replaces the configuration `old` by `new`, and returns the keys that differ.
///
/// # Errors
/// A key that differs requires a restart, or a part refuses its new values. Nothing is changed then.
pub(super) fn apply(daemon: &Parts<'_>, old: &Config, new: &Config) -> Result<Vec<String>, String> {
    let changed = differing(old, new);
    let fixed: Vec<&str> = changed.iter().map(String::as_str).filter(|key| !is_changeable(key)).collect();
    if !fixed.is_empty() {
        return Err(format!(
            "changed keys that require a restart of the daemon: {}; nothing was changed",
            fixed.join(", ")
        ));
    }
    for (done, (name, step)) in STEPS.iter().enumerate() {
        if let Err(error) = step(daemon, new) {
            for (name, step) in &STEPS[..done] {
                if let Err(error) = step(daemon, old) {
                    tracing::error!("roll back to the previous configuration: {name}: {error}");
                }
            }
            return Err(format!("{name}: {error}; nothing was changed"));
        }
    }
    Ok(changed)
}

fn is_changeable(key: &str) -> bool {
    CHANGEABLE.iter().any(|prefix| *prefix == key || prefix.ends_with('.') && key.starts_with(prefix))
}

/// Returns the dotted keys whose values differ.
fn differing(old: &Config, new: &Config) -> Vec<String> {
    let (old, new) = (flat(old), flat(new));
    let mut keys: Vec<String> = old.keys().chain(new.keys()).cloned().collect();
    keys.sort();
    keys.dedup();
    keys.retain(|key| old.get(key) != new.get(key));
    keys
}

fn flat(config: &Config) -> BTreeMap<String, Value> {
    fn walk(parent: &str, value: Value, into: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(table) => table.into_iter().for_each(|(name, value)| {
                let key = if parent.is_empty() { name } else { format!("{parent}.{name}") };
                walk(&key, value, into);
            }),
            value => drop(into.insert(parent.to_owned(), value)),
        }
    }
    let mut keys = BTreeMap::new();
    walk("", serde_json::to_value(config).unwrap_or_default(), &mut keys);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_keys_are_named_and_classified() {
        let config = |text: &str| Config::parse("", text).expect("valid");
        let old = config("");
        assert!(differing(&old, &config("")).is_empty());
        let new = config("socket = \"/x\"\n[log]\nlevel = \"debug\"\n[registries.mirrors]\n\"a.b\" = [\"http://m\"]\n");
        assert_eq!(differing(&old, &new), ["log.level", "registries.mirrors.a.b", "socket"]);
        assert!(is_changeable("log.level") && is_changeable("registries.mirrors.a.b") && is_changeable("network.pool"));
        assert!(!is_changeable("socket") && !is_changeable("network.pools") && !is_changeable("logs"));
    }
}
