//! A configuration as TOML again, with where each value was said.

use std::collections::BTreeMap;

use toml::{Table, Value as Toml};

use super::{
    Config, ConfigError,
    layers::{Layers, shown},
};

/// Widest line that the places of others are aligned with.
const WIDTH_MAX: usize = 60;

impl Config {
    /// As a file that says the same. With `layers` each line tells which file it is from.
    pub(crate) fn shown(&self, layers: Option<&Layers>) -> Result<String, ConfigError> {
        let wrong = |error: toml::ser::Error| ConfigError(format!("write TOML: {error}"));
        let Some(layers) = layers else { return toml::to_string_pretty(self).map_err(wrong) };
        let table = Table::try_from(self).map_err(wrong)?;
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

/// From a key to where it was said.
struct Origin(BTreeMap<Vec<String>, String>);

impl Origin {
    /// Values first, then tables: a table ends what is above it.
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
                lines.push((format!("[{}]", shown(path)), None));
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
