//! Converts the merged values into typed ones, and collects all errors.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ConfigError,
    layers::{Data, Layers, Place, Value, Values, dotted},
    value::is_host,
};

/// Maximum edit distance between an unknown key and the known key that is suggested for it.
const DISTANCE_MAX: usize = 2;

/// Reads the merged values key by key. Keys that remain at the end are unknown.
pub(super) struct Reader {
    defaults: Values,
    /// Values that were not read yet.
    values: Values,
    /// Tables without a key.
    empty_tables: Values,
    /// Places of the values that were read.
    places: BTreeMap<&'static str, Place>,
    known: BTreeSet<&'static str>,
    errors: Vec<(Place, String)>,
    is_file_missing: bool,
}

impl Reader {
    pub(super) fn new(layers: Layers) -> Self {
        let Layers { defaults, values, empty_tables, errors, .. } = layers;
        let is_file_missing = !errors.is_empty();
        Self {
            defaults,
            values,
            empty_tables,
            places: BTreeMap::new(),
            known: BTreeSet::new(),
            errors,
            is_file_missing,
        }
    }

    /// Reads a key that has a default. An invalid value is recorded as an error, and the default is returned instead.
    pub(super) fn value<T>(
        &mut self,
        key: &'static str,
        check: impl Fn(&Value) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        if let Some(valid) = self.checked(key, &check) {
            return Ok(valid);
        }
        let default = self.defaults.get(&path(key)).ok_or_else(|| ConfigError(format!("{key}: has no default")))?;
        check(default).map_err(|cause| ConfigError(format!("{key}: default: {cause}")))
    }

    /// Reads a key that may be unset: absent, or an empty string.
    pub(super) fn optional<T>(&mut self, key: &'static str, check: impl Fn(&Value) -> Result<T, String>) -> Option<T> {
        let empty = |value: &Value| value.data == Data::Text(String::new());
        self.checked(key, |value| if empty(value) { Ok(None) } else { check(value).map(Some) }).flatten()
    }

    /// Reads a list and checks each item.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        check: impl Fn(&Value) -> Result<T, String>,
    ) -> Result<Vec<T>, ConfigError> {
        let value = self.take(key);
        let value = value.or_else(|| self.defaults.get(&path(key)).cloned());
        let value = value.ok_or_else(|| ConfigError(format!("{key}: has no default")))?;
        Ok(self.items(key, value, check))
    }

    /// Reads a table of lists whose keys are hosts, or `*`.
    pub(super) fn lists_under<T>(
        &mut self,
        table: &'static str,
        check: impl Fn(&Value) -> Result<T, String>,
    ) -> BTreeMap<String, Vec<T>> {
        self.known.insert(table);
        let table_path = path(table);
        let paths: Vec<Vec<String>> = self.values.keys().filter(|key| is_under(key, &table_path)).cloned().collect();
        let mut lists = BTreeMap::new();
        for path in paths {
            let Some(value) = self.values.remove(&path) else { continue };
            if path.last().is_some_and(|name| name != "*" && !is_host(name)) {
                let error = format!("{}: is not a host, host:port or \"*\"", dotted(&path));
                self.errors.push((value.place.clone(), error));
            }
            let items = self.items(&dotted(&path), value, &check);
            lists.extend(path.last().map(|name| (name.clone(), items)));
        }
        lists
    }

    /// Returns the names of the tables in a table, also of those without a key.
    pub(super) fn tables_under(&mut self, table: &'static str) -> Vec<String> {
        self.known.insert(table);
        let in_table = |key: &&Vec<String>, length: usize| key.len() >= length && key[0] == table;
        let names = self.values.keys().filter(|key| in_table(key, 3));
        let names = names.chain(self.empty_tables.keys().filter(|key| in_table(key, 2))).map(|key| key[1].clone());
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Reads a table of strings that is in a table of a table; empty if it is not set.
    pub(super) fn texts_in(
        &mut self,
        [table, name]: [&str; 2],
        key: &str,
        check: impl Fn(&Value) -> Result<String, String>,
    ) -> BTreeMap<String, String> {
        let table_path = [table, name, key].map(str::to_owned);
        let paths: Vec<Vec<String>> = self.values.keys().filter(|path| is_under(path, &table_path)).cloned().collect();
        let mut texts = BTreeMap::new();
        for path in paths {
            let (Some(value), Some(name)) = (self.values.remove(&path), path.last()) else { continue };
            match check(&value) {
                Ok(text) => drop(texts.insert(name.clone(), text)),
                Err(cause) => self.errors.push((value.place, format!("{}: {cause}", dotted(&path)))),
            }
        }
        texts
    }

    /// Reads a key of a table in a table. `None`: it is not set, or invalid, which is recorded as an error.
    pub(super) fn value_in<T>(
        &mut self,
        [table, name]: [&str; 2],
        key: &str,
        check: impl Fn(&Value) -> Result<T, String>,
    ) -> Option<T> {
        self.value_at(&[table, name, key], check)
    }

    /// Reads a key at any depth. `None`: it is not set, or invalid, which is recorded as an error.
    pub(super) fn value_at<T>(&mut self, path: &[&str], check: impl Fn(&Value) -> Result<T, String>) -> Option<T> {
        let path: Vec<String> = path.iter().map(|name| (*name).to_owned()).collect();
        let value = self.values.remove(&path)?;
        match check(&value) {
            Ok(valid) => Some(valid),
            Err(cause) => {
                self.errors.push((value.place, format!("{}: {cause}", dotted(&path))));
                None
            }
        }
    }

    /// Like [`Self::value_in`], but records an error if the key is not set.
    pub(super) fn required_in<T>(
        &mut self,
        table: [&str; 2],
        key: &str,
        check: impl Fn(&Value) -> Result<T, String>,
    ) -> Option<T> {
        let path = [table[0], table[1], key].map(str::to_owned);
        if !self.values.contains_key(path.as_slice()) {
            self.error_in(table[0], table[1], &format!("{key} is not set"));
            return None;
        }
        self.value_in(table, key, check)
    }

    /// Reads a list of a table in a table; empty if it is not set.
    pub(super) fn list_in<T>(
        &mut self,
        [table, name]: [&str; 2],
        key: &str,
        check: impl Fn(&Value) -> Result<T, String>,
    ) -> Vec<T> {
        self.optional_list_in([table, name], key, check).unwrap_or_default()
    }

    /// Reads a list in a table of a table. `None`: it is not set.
    pub(super) fn optional_list_in<T>(
        &mut self,
        [table, name]: [&str; 2],
        key: &str,
        check: impl Fn(&Value) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let path = [table, name, key].map(str::to_owned);
        let value = self.values.remove(path.as_slice())?;
        Some(self.items(&dotted(&path), value, check))
    }

    /// Records an error of a table in a table.
    pub(super) fn error_in(&mut self, table: &str, name: &str, cause: &str) {
        let is_in = |key: &[String]| key.len() >= 2 && key[0] == table && key[1] == name;
        let mut places = self.values.iter().chain(&self.empty_tables);
        let place = places.find(|(key, _)| is_in(key)).map(|(_, value)| value.place.clone());
        let place = place.or_else(|| self.errors.last().map(|(place, _)| place.clone()));
        if let Some(place) = place {
            self.errors.push((place, format!("{table}.{name}: {cause}")));
        }
    }

    /// Records a conflict between keys, at the place of the first one that is set in a file.
    pub(super) fn conflict(&mut self, keys: &[&'static str], cause: &str) {
        let first_set = keys.iter().find(|key| self.places.get(*key).is_some_and(|place| !place.is_default()));
        let Some(key) = first_set.or(keys.first()) else { return };
        if let Some(place) = self.places.get(key).or_else(|| self.defaults.get(&path(key)).map(|value| &value.place)) {
            self.errors.push((place.clone(), format!("{key}: {cause}")));
        }
    }

    /// Whether every file was read. If one is missing, keys cannot be checked against each other.
    pub(super) fn has_all_files(&self) -> bool {
        !self.is_file_missing
    }

    /// Reports the values that were not read as unknown keys. Returns all errors in the order of the files.
    pub(super) fn finish(mut self) -> Result<(), ConfigError> {
        for (path, value) in std::mem::take(&mut self.values) {
            let key = dotted(&path);
            let cause = self.unknown_key(&key);
            self.errors.push((value.place, format!("{key}: {cause}")));
        }
        self.errors.sort();
        let lines: Vec<String> = self.errors.iter().map(|(place, cause)| format!("{place}: {cause}")).collect();
        if lines.is_empty() { Ok(()) } else { Err(ConfigError(lines.join("\n"))) }
    }

    fn checked<T>(&mut self, key: &'static str, check: impl Fn(&Value) -> Result<T, String>) -> Option<T> {
        let value = self.take(key)?;
        match check(&value) {
            Ok(valid) => Some(valid),
            Err(cause) => {
                self.errors.push((value.place, format!("{key}: {cause}")));
                None
            }
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.insert(key);
        let value = self.values.remove(&path(key))?;
        self.places.insert(key, value.place.clone());
        Some(value)
    }

    fn items<T>(&mut self, key: &str, value: Value, check: impl Fn(&Value) -> Result<T, String>) -> Vec<T> {
        let Data::List(items) = &value.data else {
            self.errors.push((value.place.clone(), format!("{key}: must be an array, is {}", value.kind())));
            return Vec::new();
        };
        let mut valid = Vec::new();
        for item in items {
            match check(item) {
                Ok(item) => valid.push(item),
                Err(cause) => self.errors.push((item.place.clone(), format!("{key}: {cause}"))),
            }
        }
        valid
    }

    fn unknown_key(&self, key: &str) -> String {
        let table = format!("{key}.");
        if self.known.iter().any(|known| *known == key || known.starts_with(&table)) {
            return format!("is a table; set its keys under [{key}]");
        }
        if let Some(value) = self.known.iter().find(|known| key.starts_with(&format!("{known}."))) {
            return format!("no such key; `pinion config default` shows the values of {value}");
        }
        let near = self.known.iter().map(|known| (distance(key, known), *known)).min();
        match near {
            Some((distance, known)) if distance <= DISTANCE_MAX => format!("no such key; did you mean {known}?"),
            _ => "no such key; `pinion config default` lists all keys".to_owned(),
        }
    }
}

fn path(key: &str) -> Vec<String> {
    key.split('.').map(str::to_owned).collect()
}

fn is_under(key: &[String], table: &[String]) -> bool {
    key.len() == table.len() + 1 && key.starts_with(table)
}

/// Returns the Levenshtein distance: the number of letters to change, insert or delete.
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
