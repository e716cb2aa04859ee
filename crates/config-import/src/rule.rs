//! Rules: what becomes of a key of another engine.

use toml::{Table, Value};

/// What becomes of a key of another engine.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The path of the key; `*` stands for any name, `**` at the end for everything below.
    pub key: &'static str,
    /// The engine's default, as TOML; empty if the key is unset by default.
    pub default: &'static str,
    /// How it is translated.
    pub treatment: Treatment,
}

/// How a key is translated.
#[derive(Clone, Copy, Debug)]
pub enum Treatment {
    /// It becomes this key of Pinion.
    Becomes(&'static str, Conversion),
    /// It is a part of the address that becomes this key of Pinion.
    Part(&'static str, Part),
    /// Pinion needs nothing for the same result, or does not have what the key configures.
    Unneeded(&'static str),
    /// Pinion behaves as with the default; another value is not served.
    Unserved(&'static str),
}

/// How a value is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// It has the same type and meaning.
    Same,
    /// A duration of Go, such as `1h30m0s`.
    Duration,
    /// A level of logrus.
    Level,
    /// A list of which only one item can be translated.
    One,
    /// A single value that becomes an item of a list.
    Item,
    /// A map that becomes a map: the last part of the path is the name.
    Named,
    /// A boolean that becomes its opposite.
    Opposite,
    /// A boolean that becomes the name of a cgroup driver.
    SystemdDriver,
    /// A boolean; `false` becomes a sysctl.
    SysctlIfFalse(&'static str),
    /// A number of a million, which becomes a fraction.
    Millionth,
    /// A number that is unlimited if it is not positive.
    Limit,
    /// A list of sysctls, in which spaces around `=` are removed.
    Sysctls,
}

/// A part of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Whether there is an address at all.
    Enabled,
    /// The host.
    Host,
    /// The port.
    Port,
    /// Host and port.
    Address,
}

impl Rule {
    /// Whether a value is the engine's default. An empty value is the same as an unset one.
    pub(crate) fn is_default(&self, value: &Value) -> bool {
        match self.default_value() {
            Some(default) => *value == default,
            None => match value {
                Value::String(text) => text.is_empty(),
                Value::Array(items) => items.is_empty(),
                Value::Table(table) => table.is_empty(),
                Value::Boolean(flag) => !flag,
                Value::Integer(number) => *number == 0,
                _ => false,
            },
        }
    }

    /// Returns the engine's default; `None` if the key is unset by default.
    pub(crate) fn default_value(&self) -> Option<Value> {
        let table: Table = toml::from_str(&format!("v = {}", self.default)).ok()?;
        table.get("v").cloned()
    }
}

/// Makes a rule of a key that becomes one of Pinion.
pub(crate) const fn becomes(
    key: &'static str,
    default: &'static str,
    target: &'static str,
    conversion: Conversion,
) -> Rule {
    Rule { key, default, treatment: Treatment::Becomes(target, conversion) }
}

/// Makes a rule of a key that is a part of an address.
pub(crate) const fn part(key: &'static str, default: &'static str, target: &'static str, part: Part) -> Rule {
    Rule { key, default, treatment: Treatment::Part(target, part) }
}

/// Makes a rule of a key that Pinion does not need.
pub(crate) const fn unneeded(key: &'static str, default: &'static str, reason: &'static str) -> Rule {
    Rule { key, default, treatment: Treatment::Unneeded(reason) }
}

/// Makes a rule of a key that Pinion does not serve, except for its default.
pub(crate) const fn unserved(key: &'static str, default: &'static str, reason: &'static str) -> Rule {
    Rule { key, default, treatment: Treatment::Unserved(reason) }
}
