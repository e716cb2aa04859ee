//! The kubelet's configuration files: YAML, which includes JSON.

use std::path::Path;

use serde_json::Value;

use crate::Host;

/// Reads and parses a file.
pub(super) fn read(host: &Host, path: &Path) -> Result<Value, String> {
    let text = host.try_read(path).map_err(|error| error.to_string())?;
    let value: Value = serde_saphyr::from_str(&text).map_err(|error| first_line(&error.to_string()))?;
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(Default::default())),
        _ => Err("not a mapping of keys to values".to_owned()),
    }
}

/// Merges `from` into a configuration: maps key by key, any other value as a whole.
pub(super) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
