//! Typed values out of what the files say; all that is wrong with them is gathered.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ConfigError,
    layers::{Layers, Place, Value, Values, What, shown},
    value::is_host,
};

/// How many letters a key may differ in from the one that was meant.
const DISTANCE_MAX: usize = 2;

/// See the head of this file.
pub(super) struct Reader {
    defaults: Values,
    /// What is left to be asked for.
    values: Values,
    /// Where each key that was asked for was said.
    places: BTreeMap<&'static str, Place>,
    known: BTreeSet<&'static str>,
    wrong: Vec<(Place, String)>,
    without_a_file: bool,
}

impl Reader {
    pub(super) fn new(layers: Layers) -> Self {
        let Layers { defaults, values, wrong, .. } = layers;
        let without_a_file = !wrong.is_empty();
        Self { defaults, values, places: BTreeMap::new(), known: BTreeSet::new(), wrong, without_a_file }
    }

    /// A key that has a default. A wrong value is noted, and the default stands for it until the end.
    pub(super) fn value<T>(
        &mut self,
        key: &'static str,
        check: impl Fn(&Value) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        if let Some(good) = self.said(key, &check) {
            return Ok(good);
        }
        let default = self.defaults.get(&path(key)).ok_or_else(|| ConfigError(format!("{key}: has no default")))?;
        check(default).map_err(|why| ConfigError(format!("{key}: its default: {why}")))
    }

    /// A key that may be unset: not said, or the empty text.
    pub(super) fn optional<T>(&mut self, key: &'static str, check: impl Fn(&Value) -> Result<T, String>) -> Option<T> {
        let empty = |value: &Value| value.what == What::Text(String::new());
        self.said(key, |value| if empty(value) { Ok(None) } else { check(value).map(Some) }).flatten()
    }

    /// A list, each item of which is checked.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        check: impl Fn(&Value) -> Result<T, String>,
    ) -> Result<Vec<T>, ConfigError> {
        let said = self.take(key);
        let value = said.or_else(|| self.defaults.get(&path(key)).cloned());
        let value = value.ok_or_else(|| ConfigError(format!("{key}: has no default")))?;
        Ok(self.items(key, value, check))
    }

    /// Lists by name: a table whose keys are hosts, or `*`.
    pub(super) fn lists_under<T>(
        &mut self,
        table: &'static str,
        check: impl Fn(&Value) -> Result<T, String>,
    ) -> BTreeMap<String, Vec<T>> {
        self.known.insert(table);
        let above = path(table);
        let paths: Vec<Vec<String>> = self.values.keys().filter(|key| is_under(key, &above)).cloned().collect();
        let mut lists = BTreeMap::new();
        for path in paths {
            let Some(value) = self.values.remove(&path) else { continue };
            if path.last().is_some_and(|name| name != "*" && !is_host(name)) {
                self.wrong.push((value.at.clone(), format!("{}: is not a host, host:port or \"*\"", shown(&path))));
            }
            let items = self.items(&shown(&path), value, &check);
            lists.extend(path.last().map(|name| (name.clone(), items)));
        }
        lists
    }

    /// Notes that keys make no sense together; told at the place of the first that a file names.
    pub(super) fn conflict(&mut self, keys: &[&'static str], why: &str) {
        let said = keys.iter().find(|key| self.places.get(*key).is_some_and(|place| !place.is_default()));
        let Some(key) = said.or(keys.first()) else { return };
        if let Some(place) = self.places.get(key).or_else(|| self.defaults.get(&path(key)).map(|value| &value.at)) {
            self.wrong.push((place.clone(), format!("{key}: {why}")));
        }
    }

    /// Whether every file was read: with one missing, what keys say together is not known.
    pub(super) fn has_all_files(&self) -> bool {
        !self.without_a_file
    }

    /// What nobody asked for is no key; then all that is wrong, in the order of the files.
    pub(super) fn finish(mut self) -> Result<(), ConfigError> {
        for (path, value) in std::mem::take(&mut self.values) {
            let key = shown(&path);
            let why = self.unknown(&key);
            self.wrong.push((value.at, format!("{key}: {why}")));
        }
        self.wrong.sort();
        let lines: Vec<String> = self.wrong.iter().map(|(place, why)| format!("{place}: {why}")).collect();
        if lines.is_empty() { Ok(()) } else { Err(ConfigError(lines.join("\n"))) }
    }

    fn said<T>(&mut self, key: &'static str, check: impl Fn(&Value) -> Result<T, String>) -> Option<T> {
        let value = self.take(key)?;
        match check(&value) {
            Ok(good) => Some(good),
            Err(why) => {
                self.wrong.push((value.at, format!("{key}: {why}")));
                None
            }
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.insert(key);
        let value = self.values.remove(&path(key))?;
        self.places.insert(key, value.at.clone());
        Some(value)
    }

    fn items<T>(&mut self, key: &str, value: Value, check: impl Fn(&Value) -> Result<T, String>) -> Vec<T> {
        let What::List(items) = &value.what else {
            self.wrong.push((value.at.clone(), format!("{key}: {}, a list is expected", value.kind())));
            return Vec::new();
        };
        let mut good = Vec::new();
        for item in items {
            match check(item) {
                Ok(item) => good.push(item),
                Err(why) => self.wrong.push((item.at.clone(), format!("{key}: {why}"))),
            }
        }
        good
    }

    fn unknown(&self, key: &str) -> String {
        let table = format!("{key}.");
        if self.known.iter().any(|known| *known == key || known.starts_with(&table)) {
            return format!("is a table: write its keys under [{key}]");
        }
        if let Some(value) = self.known.iter().find(|known| key.starts_with(&format!("{known}."))) {
            return format!("no such key; `pinion config default` shows what {value} takes");
        }
        let near = self.known.iter().map(|known| (distance(key, known), *known)).min();
        match near {
            Some((distance, known)) if distance <= DISTANCE_MAX => format!("no such key; is {known} meant?"),
            _ => "no such key; `pinion config default` lists all".to_owned(),
        }
    }
}

fn path(key: &str) -> Vec<String> {
    key.split('.').map(str::to_owned).collect()
}

fn is_under(key: &[String], table: &[String]) -> bool {
    key.len() == table.len() + 1 && key.starts_with(table)
}

/// Levenshtein's: letters to change, add or leave out.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let changed = before + usize::from(a != *b);
            before = row[j + 1];
            row[j + 1] = changed.min(before + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}
