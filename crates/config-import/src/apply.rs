//! Applies the rules of an engine to the settings of its files.

use std::collections::BTreeMap;

use toml::Value;

use crate::{
    Finding, Outcome, Part, Rule, Treatment,
    convert::convert,
    key::{dotted, matches, parts},
    source::Setting,
};

/// Translates settings. Of several settings of one key, the last is used; keys that are not set have the defaults of
/// their engine.
pub(crate) fn apply(settings: Vec<Setting>, rules: &[Rule]) -> Vec<Finding> {
    let settings = last_of_each(settings);
    let mut findings: Vec<Finding> = settings.iter().map(|setting| finding(setting, rules)).collect();
    let is_set = |rule: &Rule| settings.iter().any(|setting| matches(rule.key, &setting.path));
    let is_implied = |rule: &&Rule| !rule.key.contains('*') && !is_set(rule);
    findings.extend(rules.iter().filter(is_implied).filter_map(implied));
    findings.extend(addresses(&settings, rules));
    findings
}

/// Removes settings that a later one of the same key overrides.
fn last_of_each(settings: Vec<Setting>) -> Vec<Setting> {
    let mut last = BTreeMap::new();
    for (index, setting) in settings.iter().enumerate() {
        last.insert(setting.path.clone(), index);
    }
    let is_last = |(index, setting): &(usize, Setting)| last.get(&setting.path) == Some(index);
    settings.into_iter().enumerate().filter(is_last).map(|(_, setting)| setting).collect()
}

fn finding(setting: &Setting, rules: &[Rule]) -> Finding {
    let rule = rules.iter().find(|rule| matches(rule.key, &setting.path));
    Finding {
        key: dotted(setting.written.as_ref().unwrap_or(&setting.path)),
        place: Some((setting.file.to_path_buf(), setting.line)),
        outcome: rule.map_or(Outcome::Unknown, |rule| outcome(rule, &setting.path, &setting.value)),
    }
}

/// Returns the finding of a key that is not set, if its default becomes a key of Pinion.
fn implied(rule: &Rule) -> Option<Finding> {
    let Treatment::Becomes(..) = rule.treatment else { return None };
    let path: Vec<String> = parts(rule.key).into_iter().map(str::to_owned).collect();
    let outcome = outcome(rule, &path, &rule.default_value()?);
    matches!(outcome, Outcome::Translated { .. }).then(|| Finding { key: dotted(&path), place: None, outcome })
}

/// Applies a rule to a value.
pub(crate) fn outcome(rule: &Rule, path: &[String], value: &Value) -> Outcome {
    match rule.treatment {
        Treatment::Unneeded(reason) => Outcome::Unneeded(reason.to_owned()),
        Treatment::Unserved(_) if rule.is_default(value) => Outcome::Same,
        Treatment::Unserved(reason) => Outcome::Unserved(reason.to_owned()),
        Treatment::Part(target, _) => Outcome::Translated { target: owned(target), value: None },
        Treatment::Becomes(target, conversion) => match convert(conversion, value) {
            Ok(None) => Outcome::Same,
            Ok(value @ Some(_)) => {
                let mut target = owned(target);
                if conversion == crate::Conversion::Named {
                    target.extend(name(rule, path));
                }
                Outcome::Translated { target, value }
            }
            Err(reason) => Outcome::Unserved(reason),
        },
    }
}

/// Returns the part of a path that the first `*` of its rule stands for.
fn name(rule: &Rule, path: &[String]) -> Option<String> {
    parts(rule.key).iter().position(|part| *part == "*").and_then(|index| path.get(index).cloned())
}

/// A part of an address, its text, and the setting that it is from.
type AddressPart<'a> = (Part, String, Option<&'a Setting>);

/// Joins the parts of each address.
fn addresses(settings: &[Setting], rules: &[Rule]) -> Vec<Finding> {
    let mut targets: BTreeMap<&str, Vec<AddressPart<'_>>> = BTreeMap::new();
    for rule in rules {
        let Treatment::Part(target, part) = rule.treatment else { continue };
        let setting = settings.iter().find(|setting| matches(rule.key, &setting.path));
        let value = setting.map(|setting| setting.value.clone()).or_else(|| rule.default_value());
        targets.entry(target).or_default().push((part, value.map_or(String::new(), plain), setting));
    }
    let is_set = |parts: &[AddressPart<'_>]| parts.iter().any(|(.., setting)| setting.is_some());
    targets.into_iter().filter(|(_, parts)| is_set(parts)).map(|(target, parts)| address(target, &parts)).collect()
}

fn address(target: &str, parts: &[AddressPart<'_>]) -> Finding {
    let text = |wanted: Part| parts.iter().find(|(part, ..)| *part == wanted).map(|(_, text, _)| text.as_str());
    let value = match (text(Part::Enabled), text(Part::Address)) {
        (Some("false"), _) => String::new(),
        (_, Some(address)) => format!("http://{address}"),
        _ => {
            let host = text(Part::Host).unwrap_or_default();
            let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
            format!("{host}:{}", text(Part::Port).unwrap_or_default())
        }
    };
    let first = parts.iter().find_map(|(.., setting)| *setting);
    Finding {
        key: first.map_or_else(String::new, |setting| dotted(setting.written.as_ref().unwrap_or(&setting.path))),
        place: first.map(|setting| (setting.file.to_path_buf(), setting.line)),
        outcome: Outcome::Translated { target: owned(target), value: Some(Value::String(value)) },
    }
}

fn plain(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn owned(key: &str) -> Vec<String> {
    parts(key).into_iter().map(str::to_owned).collect()
}
