//! Parses JSON as runtimes written in Go do, for which most `config.json` are written: `null` means an absent field.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::json_path;

/// Objects whose members are named by the user, not by the specification. `null` is not a valid value in them: dropping
/// the member would silently lose, for example, a sysctl.
const MAPS: [&str; 6] = ["annotations", "netDevices", "rdma", "sysctl", "timeOffsets", "unified"];

/// A parse error: the property, such as `linux.namespaces[0].type`, and the cause.
#[derive(Debug, PartialEq, Eq)]
pub struct JsonError {
    property: String,
    cause: String,
}

impl fmt::Display for JsonError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.property.is_empty() { "" } else { ": " };
        write!(formatter, "{}{colon}{}", self.property, self.cause)
    }
}

impl std::error::Error for JsonError {}

/// Parses a spec, or a part of one, that another program wrote.
///
/// As in runc and crun, a field that is `null` is absent. As in runc, the last of several fields with the same name
/// replaces the others. `null` as an element of a list or as a value of a map such as `annotations` is an error, as in
/// crun.
///
/// Nearly all texts have neither, and are parsed in one pass, directly into the type. Only if that fails, the text is
/// parsed again, into a tree.
pub fn from_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, JsonError> {
    let error = match serde_json::from_slice(text) {
        Ok(value) => return Ok(value),
        Err(error) => JsonError::new(text, &error),
    };
    // Parsing into a tree fails only for text that is not JSON. That error is reported first.
    let mut document: Value = serde_json::from_slice(text).map_err(|error| JsonError::new(text, &error))?;
    drop_nulls(&mut document, false);
    // The tree is converted to text and parsed again, so that the deserializers are not compiled for a second input
    // type.
    let Ok(plain) = serde_json::to_vec(&document) else { return Err(error) };
    serde_json::from_slice(&plain).map_err(|other| {
        let other = JsonError::without_position(&plain, &other);
        // The first error is the same, but has the line and column in the original text.
        if error.property == other.property && error.cause.starts_with(&other.cause) { error } else { other }
    })
}

impl JsonError {
    fn new(text: &[u8], error: &serde_json::Error) -> Self {
        Self { property: json_path::at(text, error.line(), error.column()), cause: error.to_string() }
    }

    /// Returns an error without line and column, for a text that the user does not know.
    fn without_position(text: &[u8], error: &serde_json::Error) -> Self {
        let Self { property, cause } = Self::new(text, error);
        let position = format!(" at line {} column {}", error.line(), error.column());
        let cause = match cause.strip_suffix(&position) {
            Some(plain) => plain.to_owned(),
            None => cause,
        };
        Self { property, cause }
    }
}

/// Removes the members of objects that are `null`. `is_map` is whether the value is one of [`MAPS`].
fn drop_nulls(value: &mut Value, is_map: bool) {
    match value {
        Value::Object(members) => {
            if !is_map {
                members.retain(|_, member| !member.is_null());
            }
            for (name, member) in members {
                drop_nulls(member, !is_map && MAPS.contains(&name.as_str()));
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| drop_nulls(element, false)),
        _ => {}
    }
}
