//! Converts a configuration to TOML, optionally with the place of each value.

use std::collections::BTreeMap;

use toml::{Table, Value as Toml};

use super::{
    Config, ConfigError,
    layers::{Layers, dotted},
};

/// Maximum column at which the places are aligned.
const WIDTH_MAX: usize = 60;

impl Config {
    /// Returns an equivalent configuration file. With `layers`, each line has a comment with the place of its value.
    pub(crate) fn to_toml(&self, layers: Option<&Layers>) -> Result<String, ConfigError> {
        let failed = |error: toml::ser::Error| ConfigError(format!("write TOML: {error}"));
        let Some(layers) = layers else { return toml::to_string_pretty(self).map_err(failed) };
        let table = Table::try_from(self).map_err(failed)?;
        let mut lines = Vec::new();
        Origin(layers.places()).write(&mut Vec::new(), &table, &mut lines);
        let widths = lines.iter().filter(|(_, place)| place.is_some()).map(|(text, _)| text.chars().count());
        let width = widths.max().unwrap_or(0).min(WIDTH_MAX);
        let line = |(text, place): (String, Option<String>)| match place {
            Some(place) => format!("{text:width$}  # {place}\n"),
            None => text + "\n",
        };
        Ok(lines.into_iter().map(line).collect())
    }
}

/// The place of each key.
struct Origin(BTreeMap<Vec<String>, String>);

impl Origin {
    /// Writes the values before the tables, because in TOML the header of a table ends the one above it.
    fn write(&self, path: &mut Vec<String>, table: &Table, lines: &mut Vec<(String, Option<String>)>) {
        let (tables, values): (Vec<_>, Vec<_>) = table.iter().partition(|(_, value)| value.is_table());
        for (name, value) in values {
            path.push(name.clone());
            lines.push((format!("{} = {value}", quoted(name)), Some(self.place(path))));
            path.pop();
        }
        for (name, value) in tables {
            path.push(name.clone());
            if let Toml::Table(below) = value {
                lines.push((String::new(), None));
                lines.push((format!("[{}]", dotted(path)), None));
                self.write(path, below, lines);
            }
            path.pop();
        }
    }

    fn place(&self, path: &[String]) -> String {
        self.0.get(path).cloned().unwrap_or_else(|| "default".to_owned())
    }
}

fn quoted(name: &str) -> String {
    let bare = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    if bare { name.to_owned() } else { format!("{name:?}") }
}
