//! From one configuration to another under a running engine: all of it, or nothing.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use tokio::signal::unix::Signal;

use super::{config::Config, engine::changeable, live::Live, watch::Watch};
use crate::Failure;

/// What can be changed while the daemon runs; every other key needs a restart.
const CHANGEABLE: &[&str] = &["log.", "metrics.", "tracing.", "network.pool", "cdi.", "upgrade.", "registries."];

/// One part that takes up a configuration. It may refuse, and is then as it was.
type Step = (&'static str, fn(&Live, &Config) -> Result<(), Failure>);

/// In this order; undone by the same with the configuration before.
const STEPS: &[Step] = &[
    ("log", |live, config| live.log.apply(&config.log)),
    ("tracing", |live, config| live.log.trace(&config.tracing)),
    ("metrics", |live, config| live.metrics.listen(config.metrics.address).map(drop)),
    ("engine", |live, config| {
        live.engine.reconfigure(changeable(config)).map_err(|error| Failure::daemon(error.to_string()))
    }),
];

/// Takes up `new` in place of `old`; gives the keys that differ.
///
/// # Errors
/// A key that differs needs a restart, or a part refuses. Everything is as it was then.
pub(super) fn apply(live: &Live, old: &Config, new: &Config) -> Result<Vec<String>, String> {
    let changed = differing(old, new);
    let fixed: Vec<&str> = changed.iter().map(String::as_str).filter(|key| !is_changeable(key)).collect();
    if !fixed.is_empty() {
        let (keys, need) = (fixed.join(", "), if fixed.len() == 1 { "needs" } else { "need" });
        return Err(format!("{keys} {need} a restart of the daemon; nothing was changed"));
    }
    for (done, (name, step)) in STEPS.iter().enumerate() {
        if let Err(error) = step(live, new) {
            for (name, step) in &STEPS[..done] {
                if let Err(error) = step(live, old) {
                    tracing::error!("return to the configuration before: {name}: {error}");
                }
            }
            return Err(format!("{name}: {error}; nothing was changed"));
        }
    }
    Ok(changed)
}

fn is_changeable(key: &str) -> bool {
    CHANGEABLE.iter().any(|known| *known == key || known.ends_with('.') && key.starts_with(known))
}

/// Dotted keys whose values differ.
fn differing(old: &Config, new: &Config) -> Vec<String> {
    let (old, new) = (flat(old), flat(new));
    let mut keys: Vec<String> = old.keys().chain(new.keys()).cloned().collect();
    keys.sort();
    keys.dedup();
    keys.retain(|key| old.get(key) != new.get(key));
    keys
}

fn flat(config: &Config) -> BTreeMap<String, Value> {
    fn walk(above: &str, value: Value, into: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(table) => table.into_iter().for_each(|(name, value)| {
                let key = if above.is_empty() { name } else { format!("{above}.{name}") };
                walk(&key, value, into);
            }),
            value => drop(into.insert(above.to_owned(), value)),
        }
    }
    let mut keys = BTreeMap::new();
    walk("", serde_json::to_value(config).unwrap_or_default(), &mut keys);
    keys
}

/// Reloads on SIGHUP and when a file changes, for ever.
pub(super) async fn on_request(live: Arc<Live>, mut hangup: Signal) {
    loop {
        let mut watch = offload::hand_over(|| Watch::of(&live.source.directories()))
            .inspect_err(|error| tracing::warn!("watch the configuration's directories: {error}; use SIGHUP"))
            .ok();
        // What changed before the watch stood.
        live.look_again().await;
        let changed = async {
            match &mut watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = hangup.recv() => drop(live.reload("SIGHUP").await),
            changed = changed => match changed {
                Ok(()) => live.look_again().await,
                Err(error) => {
                    tracing::warn!("watch the configuration's directories: {error}; use SIGHUP");
                    hangup.recv().await;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named_and_told_apart() {
        let config = |text: &str| Config::parse("", text).expect("valid");
        let old = config("");
        assert!(differing(&old, &config("")).is_empty());
        let new = config("socket = \"/x\"\n[log]\nlevel = \"debug\"\n[registries.mirrors]\n\"a.b\" = [\"http://m\"]\n");
        assert_eq!(differing(&old, &new), ["log.level", "registries.mirrors.a.b", "socket"]);
        assert!(is_changeable("log.level") && is_changeable("registries.mirrors.a.b") && is_changeable("network.pool"));
        assert!(!is_changeable("socket") && !is_changeable("network.pools") && !is_changeable("logs"));
    }
}
