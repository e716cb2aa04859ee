//! Converts fields of spans and events to attributes.

use std::fmt;

use tracing::field::{Field, Visit};

use crate::proto::{KeyValue, Value};

/// Maximum length of a value: names of clients and images can have any length.
const VALUE_MAX: usize = 1024;
/// Maximum number of attributes of a span or event.
const ATTRIBUTES_MAX: usize = 32;

/// Returns the name of a field according to OpenTelemetry's semantic conventions.
fn conventional(field: &'static str) -> &'static str {
    match field {
        "rpc" => "rpc.method",
        "service" => "rpc.service",
        "status" => "rpc.grpc.status_code",
        "pod" => "k8s.pod.name",
        "namespace" => "k8s.namespace.name",
        "name" => "k8s.container.name",
        "container" => "container.id",
        "image" => "container.image.name",
        "sandbox" => "pinion.sandbox.id",
        "message" => "message",
        other => other,
    }
}

/// The fields of a span or an event.
#[derive(Default)]
pub(crate) struct Fields {
    pub(crate) attributes: Vec<KeyValue>,
    /// Value of the field `trace`.
    pub(crate) trace: Option<[u8; 16]>,
    /// Value of the field `parent`.
    pub(crate) parent: Option<[u8; 8]>,
    /// Value of the field `sampled`.
    pub(crate) sampled: Option<bool>,
    /// Value of the field `error`.
    pub(crate) error: Option<String>,
    /// Value of the field `message` of an event.
    pub(crate) message: Option<String>,
    /// Values of the fields `rpc` and `service`, which only server spans have.
    pub(crate) method: Option<String>,
    pub(crate) service: Option<String>,
    /// Whether the field `status` is set, that is, the request has been answered.
    pub(crate) answered: bool,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        let key = conventional(field.name());
        if let Some(known) = self.attributes.iter_mut().find(|known| known.key == key) {
            *known = KeyValue::new(key, value);
        } else if self.attributes.len() < ATTRIBUTES_MAX {
            self.attributes.push(KeyValue::new(key, value));
        }
    }

    fn text(&mut self, field: &Field, text: &str) {
        match field.name() {
            "trace" => self.trace = hex(text),
            "parent" => self.parent = hex(text),
            "error" => self.error = Some(bounded(text)),
            "message" => self.message = Some(bounded(text)),
            "rpc" => {
                self.method = Some(text.to_owned());
                self.put(field, Value::Text(bounded(text)));
            }
            "service" => {
                self.service = Some(text.to_owned());
                self.put(field, Value::Text(bounded(text)));
            }
            _ => self.put(field, Value::Text(bounded(text))),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.text(field, &value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        match field.name() {
            "sampled" => self.sampled = Some(value),
            _ => self.put(field, Value::Bool(value)),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.answered |= field.name() == "status";
        self.put(field, Value::Int(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Value::Int(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Value::Double(value));
    }
}

/// Truncates text at a character boundary.
fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(VALUE_MAX)].to_owned()
}

fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * n..2 * n + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_has_a_fixed_length() {
        assert_eq!(hex("00ff"), Some([0, 255]));
        assert_eq!(hex::<2>("00f"), None);
        assert_eq!(hex::<2>("00fg"), None);
        assert_eq!(hex::<2>("äx1"), None);
    }

    #[test]
    fn values_are_truncated_between_characters() {
        assert_eq!(bounded(&"ä".repeat(VALUE_MAX)).len(), VALUE_MAX);
        assert_eq!(bounded(&format!("x{}", "ä".repeat(VALUE_MAX))).len(), VALUE_MAX - 1);
    }
}
