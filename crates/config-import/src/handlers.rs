//! Runtime handlers of the engines, which become the tables `[handlers.NAME]`.

use std::path::Path;

use toml::Value;

use crate::{Finding, Outcome, key::dotted, source::Setting};

/// Where a program without a path is looked for, as the engines do by `PATH`.
const DIRECTORIES: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The settings of one handler.
pub(crate) struct Handler<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Number of parts of a path before the handler's own key.
    pub(crate) depth: usize,
    pub(crate) settings: Vec<Setting>,
}

impl Handler<'_> {
    /// Returns the last value of a key, relative to the handler's table.
    pub(crate) fn text(&self, key: &[&str]) -> Option<&str> {
        let is_key = |setting: &&Setting| setting.path[self.depth..] == *key;
        self.settings
            .iter()
            .rev()
            .find(is_key)
            .and_then(|setting| setting.value.as_str())
            .filter(|text| !text.is_empty())
    }

    /// Removes the settings of a key, relative to the handler's table, and returns the last one.
    pub(crate) fn take(&mut self, key: &[&str]) -> Option<Setting> {
        let depth = self.depth;
        self.settings.extract_if(.., |setting| setting.path[depth..] == *key).last()
    }

    /// Removes the settings below a table in the handler's table.
    pub(crate) fn take_below(&mut self, table: &str) -> Vec<Setting> {
        let depth = self.depth;
        let is_below = |setting: &mut Setting| setting.path.len() == depth + 2 && setting.path[depth] == table;
        self.settings.extract_if(.., is_below).collect()
    }

    /// Returns the finding of a setting that becomes a key of the handler.
    pub(crate) fn translated(&self, setting: &Setting, key: &[&str], value: Value) -> Finding {
        let mut target = vec!["handlers".to_owned(), self.name.to_owned()];
        target.extend(key.iter().map(|part| (*part).to_owned()));
        finding(setting, Outcome::Translated { target, value: Some(value) })
    }

    /// Returns the findings of the settings of a key that has the same value here.
    pub(crate) fn same(&mut self, key: &[&str], target: &str) -> Option<Finding> {
        let setting = self.take(key)?;
        let is_default = match &setting.value {
            Value::String(text) => text.is_empty(),
            Value::Boolean(flag) => !flag,
            Value::Array(items) => items.is_empty(),
            _ => false,
        };
        match is_default {
            true => Some(finding(&setting, Outcome::Same)),
            false => Some(self.translated(&setting, &[target], setting.value.clone())),
        }
    }

    /// Returns a finding for the whole handler, which is not translated.
    pub(crate) fn unserved(&self, reason: &str) -> Option<Finding> {
        let setting = self.settings.first()?;
        let path = setting.written.as_ref().unwrap_or(&setting.path);
        let key = dotted(&path[..path.len().min(self.depth)]);
        let place = Some((setting.file.to_path_buf(), setting.line));
        Some(Finding { key, place, outcome: Outcome::Unserved(reason.to_owned()) })
    }
}

/// Returns the finding of a setting.
pub(crate) fn finding(setting: &Setting, outcome: Outcome) -> Finding {
    let key = dotted(setting.written.as_ref().unwrap_or(&setting.path));
    Finding { key, place: Some((setting.file.to_path_buf(), setting.line)), outcome }
}

/// Returns the path of a program: as it is, or where the engine finds it. `None` if it is not found.
pub(crate) fn program(name: &str) -> Option<String> {
    if name.starts_with('/') {
        return Some(name.to_owned());
    }
    let candidates = DIRECTORIES.iter().map(|directory| Path::new(directory).join(name));
    candidates.into_iter().find(|path| path.is_file()).and_then(|path| path.to_str().map(str::to_owned))
}

/// Splits the settings of handlers off; `table` is the path of the table of all handlers. The order of handlers is that
/// of their first setting.
pub(crate) fn split(settings: &mut Vec<Setting>, table: &[&str]) -> Vec<(String, Vec<Setting>)> {
    let depth = table.len();
    let is_in = |setting: &mut Setting| setting.path.len() > depth + 1 && setting.path[..depth] == *table;
    let mut handlers: Vec<(String, Vec<Setting>)> = Vec::new();
    for setting in settings.extract_if(.., is_in) {
        match handlers.iter_mut().find(|(name, _)| *name == setting.path[depth]) {
            Some((_, settings)) => settings.push(setting),
            None => handlers.push((setting.path[depth].clone(), vec![setting])),
        }
    }
    handlers
}
