//! Reads JSON as the programs do for which most `config.json` are written: in Go, `null` and an absent field are one.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::json_path;

/// Objects whose members are named by the user, not by the specification. `null` has no meaning as a value there: to
/// drop the member would silently lose, for example, a sysctl.
const MAPS: [&str; 6] = ["annotations", "netDevices", "rdma", "sysctl", "timeOffsets", "unified"];

/// Why a text could not be read: the property, as `linux.namespaces[0].type`, and what is wrong with it.
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

/// Reads a spec, or a part of one, that another program wrote.
///
/// As in runc and crun, a field that is `null` is absent. As in runc, the last of several fields of one name counts,
/// whole. `null` as an element of a list or as a value of a map such as `annotations` is an error, as in crun.
///
/// Nearly all texts have neither, and are read in one pass, directly into the type. Only a text that this refuses is
/// read again, as a tree.
pub fn from_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, JsonError> {
    let error = match serde_json::from_slice(text) {
        Ok(value) => return Ok(value),
        Err(error) => JsonError::new(text, &error),
    };
    // Without a type, only text that is not JSON at all is an error, and the first one to report.
    let mut document: Value = serde_json::from_slice(text).map_err(|error| JsonError::new(text, &error))?;
    drop_nulls(&mut document, false);
    // The tree is written and read as text, so that the types are not compiled for a second kind of input.
    let Ok(plain) = serde_json::to_vec(&document) else { return Err(error) };
    serde_json::from_slice(&plain).map_err(|other| {
        let other = JsonError::without_place(&plain, &other);
        // The same fault, but with its line and column in the original text.
        if error.property == other.property && error.cause.starts_with(&other.cause) { error } else { other }
    })
}

impl JsonError {
    fn new(text: &[u8], error: &serde_json::Error) -> Self {
        Self { property: json_path::at(text, error.line(), error.column()), cause: error.to_string() }
    }

    /// Of a text that only exists here: its line and column would mislead.
    fn without_place(text: &[u8], error: &serde_json::Error) -> Self {
        let Self { property, cause } = Self::new(text, error);
        let place = format!(" at line {} column {}", error.line(), error.column());
        let cause = match cause.strip_suffix(&place) {
            Some(plain) => plain.to_owned(),
            None => cause,
        };
        Self { property, cause }
    }
}

/// Removes the members of objects that are `null`. `is_map`: the value is one of [`MAPS`].
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
