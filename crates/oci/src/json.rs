//! Parses JSON as runtimes written in Go do, for which most `config.json` are written: `null` means an absent field.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::json_path;

/// Objects whose members are named by the user, not by the specification. `null` is not a valid value in them: dropping
/// the member would silently lose, for example, a sysctl.
const MAPS: [&str; 6] = ["annotations", "netDevices", "rdma", "sysctl", "timeOffsets", "unified"];

/// Category of a parse error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonErrorKind {
    /// The text is not JSON, or incomplete.
    Syntax,
    /// A value has the wrong type, or a property is missing.
    Value,
}

/// A parse error: the property, such as `linux.namespaces[0].type`, and the cause.
#[derive(Debug, PartialEq, Eq)]
pub struct JsonError {
    kind: JsonErrorKind,
    property: String,
    /// Without the position.
    cause: String,
    /// Line and column in the text, if the user knows the text.
    position: Option<(usize, usize)>,
}

impl fmt::Display for JsonError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.property.is_empty() { "" } else { ": " };
        write!(formatter, "{}{colon}{}", self.property, self.cause)?;
        match self.position {
            Some((line, column)) => write!(formatter, " at line {line} column {column}"),
            None => Ok(()),
        }
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
        // Line and column are those of a text that the user does not know.
        let other = JsonError { position: None, ..JsonError::new(&plain, &other) };
        // The first error is the same, but has the line and column in the original text.
        if error.property == other.property && error.cause == other.cause { error } else { other }
    })
}

impl JsonError {
    fn new(text: &[u8], error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let message = error.to_string();
        // serde_json provides the cause only with its position at the end.
        let (cause, position) = match message.strip_suffix(&format!(" at line {line} column {column}")) {
            Some(cause) => (cause.to_owned(), Some((line, column))),
            None => (message, None),
        };
        let kind = if error.is_data() { JsonErrorKind::Value } else { JsonErrorKind::Syntax };
        Self { kind, property: json_path::at(text, line, column), cause, position }
    }

    /// Returns the category.
    pub fn kind(&self) -> JsonErrorKind {
        self.kind
    }

    /// Returns the operation that failed.
    pub fn operation(&self) -> &'static str {
        "parse"
    }

    /// Returns the property that the error is about; empty for the whole text.
    pub fn object(&self) -> &str {
        &self.property
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
