//! Parses annotations `org.systemd.property.<Name>`, whose values are in GVariant text format: `uint64 30`, `'words'`,
//! `['a','b']`, `[('/dev/null', 'rw')]`.

use std::collections::BTreeMap;

use super::value::Value;
use crate::Error;

const PREFIX: &str = "org.systemd.property.";
/// The longest value, in bytes.
const LENGTH_MAX: usize = 4096;
/// The maximum nesting depth.
const DEPTH_MAX: u32 = 8;

/// Returns the properties that annotations set. A property whose name ends in `Sec` is a time in seconds; it is
/// converted to systemd's property in microseconds, whose name ends in `USec`.
pub(super) fn properties(annotations: &BTreeMap<String, String>) -> Result<Vec<(String, Value)>, Error> {
    let mut out = Vec::new();
    for (key, text) in annotations {
        let Some(name) = key.strip_prefix(PREFIX) else { continue };
        let wrong = |reason: &str| Error::Annotation { key: key.clone(), reason: reason.into() };
        if name.len() < 3 || !name.chars().all(|c| c.is_ascii_alphabetic()) {
            return Err(wrong("the name of the property must consist of three or more letters"));
        }
        let value = parse(text)
            .ok_or_else(|| wrong("the value is not in GVariant text format, such as uint64 30, 'words' or true"))?;
        let seconds = name.strip_suffix("Sec").filter(|stem| stem.ends_with(|c: char| c.is_ascii_lowercase()));
        out.push(match seconds {
            Some(stem) => (
                format!("{stem}USec"),
                microseconds(&value).ok_or_else(|| wrong("the value is not a number of seconds"))?,
            ),
            None => (name.to_owned(), value),
        });
    }
    Ok(out)
}

fn microseconds(seconds: &Value) -> Option<Value> {
    let whole = |n: Option<u64>| n?.checked_mul(1_000_000).map(Value::U64);
    match seconds {
        Value::Byte(n) => whole(Some((*n).into())),
        Value::U16(n) => whole(Some((*n).into())),
        Value::U32(n) => whole(Some((*n).into())),
        Value::U64(n) => whole(Some(*n)),
        Value::I16(n) => whole((*n).try_into().ok()),
        Value::I32(n) => whole((*n).try_into().ok()),
        Value::I64(n) => whole((*n).try_into().ok()),
        Value::Double(n) if (0.0..1e12).contains(n) => Some(Value::U64((n * 1e6) as u64)),
        _ => None,
    }
}

/// Parses a text that consists of one value.
fn parse(text: &str) -> Option<Value> {
    if text.len() > LENGTH_MAX {
        return None;
    }
    let mut parser = Parser { rest: text.trim() };
    let value = parser.value(None, DEPTH_MAX)?;
    parser.rest.trim().is_empty().then_some(value)
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn accept(&mut self, token: char) -> bool {
        self.skip_space();
        let after = self.rest.strip_prefix(token);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    /// Reads a keyword or a number.
    fn word(&mut self) -> &'a str {
        self.skip_space();
        let end =
            self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-._".contains(c))).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    /// Parses a value. `kind` is the type keyword that preceded it, such as `uint64`.
    fn value(&mut self, kind: Option<&str>, depth: u32) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        self.skip_space();
        match self.rest.chars().next()? {
            '\'' | '"' => {
                let text = self.quoted()?;
                match kind {
                    None | Some("string") => Some(Value::Text(text)),
                    Some("objectpath") => Some(Value::Object(text)),
                    _ => None,
                }
            }
            '[' if kind.is_none() => self.list(depth),
            '(' if kind.is_none() => Some(Value::Struct(self.sequence('(', ')', depth)?)),
            _ => match self.word() {
                "true" if matches!(kind, None | Some("boolean")) => Some(Value::Bool(true)),
                "false" if matches!(kind, None | Some("boolean")) => Some(Value::Bool(false)),
                name if kind.is_none() && KINDS.contains(&name) => self.value(Some(name), depth),
                number => parse_number(number, kind),
            },
        }
    }

    fn sequence(&mut self, open: char, close: char, depth: u32) -> Option<Vec<Value>> {
        let mut values = Vec::new();
        if !self.accept(open) {
            return None;
        }
        while !self.accept(close) {
            values.push(self.value(None, depth)?);
            if !self.accept(',') {
                return self.accept(close).then_some(values);
            }
        }
        Some(values)
    }

    /// Parses a list. Elements without a type keyword have the type of the first: `[uint32 1, 2]`.
    fn list(&mut self, depth: u32) -> Option<Value> {
        let mut values = self.sequence('[', ']', depth)?;
        let element = values.first()?.signature();
        for value in &mut values {
            if value.signature() != element {
                let Value::I32(number) = value else { return None };
                let kind = KINDS
                    .into_iter()
                    .find(|kind| parse_number("0", Some(kind)).is_some_and(|v| v.signature() == element))?;
                *value = parse_number(&number.to_string(), Some(kind))?;
            }
        }
        Some(Value::List(element, values))
    }

    fn quoted(&mut self) -> Option<String> {
        let mut chars = self.rest.char_indices();
        let (_, quote) = chars.next()?;
        let mut text = String::new();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => text.push(match chars.next()?.1 {
                    'n' => '\n',
                    't' => '\t',
                    same @ ('\\' | '\'' | '"') => same,
                    _ => return None,
                }),
                '\0' => return None,
                c if c == quote => {
                    self.rest = &self.rest[at + 1..];
                    return Some(text);
                }
                c => text.push(c),
            }
        }
        None
    }
}

const KINDS: [&str; 11] =
    ["boolean", "byte", "int16", "uint16", "int32", "uint32", "int64", "uint64", "double", "string", "objectpath"];

/// Parses a number. Without a type it is an int32 or a double.
fn parse_number(text: &str, kind: Option<&str>) -> Option<Value> {
    let hex = text.strip_prefix("0x").and_then(|digits| i128::from_str_radix(digits, 16).ok());
    let number = hex.or_else(|| text.parse::<i128>().ok());
    match kind {
        Some("byte") => number?.try_into().ok().map(Value::Byte),
        Some("int16") => number?.try_into().ok().map(Value::I16),
        Some("uint16") => number?.try_into().ok().map(Value::U16),
        Some("int32") => number?.try_into().ok().map(Value::I32),
        Some("uint32") => number?.try_into().ok().map(Value::U32),
        Some("int64") => number?.try_into().ok().map(Value::I64),
        Some("uint64") => number?.try_into().ok().map(Value::U64),
        Some("double") => text.parse().ok().map(Value::Double),
        Some(_) => None,
        None => match number {
            Some(number) => number.try_into().ok().map(Value::I32),
            None => text.parse().ok().filter(|n: &f64| n.is_finite()).map(Value::Double),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: &str, text: &str) -> Result<Vec<(String, Value)>, Error> {
        properties(&BTreeMap::from([(key.to_owned(), text.to_owned()), ("other".to_owned(), "???".to_owned())]))
    }

    #[test]
    fn values_are_parsed() {
        for (text, value) in [
            ("true", Value::Bool(true)),
            ("7", Value::I32(7)),
            ("-16", Value::I32(-16)),
            ("uint64 123456789", Value::U64(123_456_789)),
            ("byte 0x1f", Value::Byte(31)),
            ("'a \\'quoted\\' word'", Value::text("a 'quoted' word")),
            ("\"it's\"", Value::text("it's")),
            ("['a', 'b',]", Value::texts(["a", "b"])),
            ("[uint32 1, 2]", Value::List("u".into(), vec![Value::U32(1), Value::U32(2)])),
            (
                "[('/dev/null', 'rw')]",
                Value::List("(ss)".into(), vec![Value::Struct(vec![Value::text("/dev/null"), Value::text("rw")])]),
            ),
        ] {
            assert_eq!(one("org.systemd.property.Name", text).unwrap(), [("Name".to_owned(), value)], "{text}");
        }
    }

    #[test]
    fn seconds_become_microseconds() {
        let properties = one("org.systemd.property.TimeoutStopSec", "uint32 2").unwrap();
        assert_eq!(properties, [("TimeoutStopUSec".to_owned(), Value::U64(2_000_000))]);
        let properties = one("org.systemd.property.TimeoutStopSec", "0.5").unwrap();
        assert_eq!(properties, [("TimeoutStopUSec".to_owned(), Value::U64(500_000))]);
        let properties = one("org.systemd.property.TimeoutStopUSec", "uint64 2").unwrap();
        assert_eq!(properties, [("TimeoutStopUSec".to_owned(), Value::U64(2))]);
        assert!(one("org.systemd.property.TimeoutStopSec", "-1").is_err());
        assert!(one("org.systemd.property.TimeoutStopSec", "'x'").is_err());
    }

    #[test]
    fn invalid_values_are_refused() {
        for text in [
            "",
            "'",
            "'a",
            "uint8 256",
            "byte 256",
            "[1, 'a']",
            "[]",
            "(1",
            "1 2",
            "words",
            "uint64 -1",
            "uint64 uint64 1",
        ] {
            let error = one("org.systemd.property.Name", text).unwrap_err();
            assert!(error.to_string().contains("org.systemd.property.Name"), "{error}");
        }
        assert!(one("org.systemd.property.Name", &"[".repeat(4000)).is_err());
        for name in ["", "ab", "With Space", "Dash-es"] {
            assert!(one(&format!("org.systemd.property.{name}"), "1").is_err(), "{name}");
        }
        assert!(one("org.systemd.properties", "1").unwrap().is_empty());
    }
}
