//! Conversions of values.

use toml::Value;

use crate::Conversion;

/// Converts a value; the error is the reason for people. `None`: the value needs no key.
pub(crate) fn convert(conversion: Conversion, value: &Value) -> Result<Option<Value>, String> {
    let same = || Ok(Some(value.clone()));
    match (conversion, value) {
        (_, Value::String(text)) if text.is_empty() => Ok(None),
        (Conversion::Same | Conversion::Named, _) => same(),
        (Conversion::Item, _) => Ok(Some(Value::Array(vec![value.clone()]))),
        (Conversion::Duration, Value::String(text)) => duration(text).map(Some),
        (Conversion::Level, Value::String(text)) => level(text).map(Some),
        (Conversion::One, Value::String(text)) if !text.contains(':') => same(),
        (Conversion::One, Value::Array(items)) if items.len() < 2 => Ok(items.first().cloned()),
        (Conversion::One, _) => Err("only one is possible; choose one".to_owned()),
        (Conversion::Opposite, Value::Boolean(flag)) => Ok(Some(Value::Boolean(!flag))),
        (Conversion::SystemdDriver, Value::Boolean(flag)) => {
            Ok(Some(Value::String(if *flag { "systemd" } else { "cgroupfs" }.to_owned())))
        }
        (Conversion::SysctlIfFalse(sysctl), Value::Boolean(flag)) => {
            Ok((!flag).then(|| Value::Array(vec![Value::String(sysctl.to_owned())])))
        }
        (Conversion::Millionth, Value::Integer(number)) => Ok(Some(Value::Float(*number as f64 / 1e6))),
        (Conversion::Limit, Value::Integer(number)) => Ok((*number > 0).then(|| value.clone())),
        (Conversion::Sysctls, Value::Array(items)) => {
            items.iter().map(sysctl).collect::<Result<Vec<_>, _>>().map(|items| Some(Value::Array(items)))
        }
        _ => Err(format!("{} is not a type that can be translated", value.type_str())),
    }
}

/// Removes the spaces around the `=` of a sysctl.
fn sysctl(value: &Value) -> Result<Value, String> {
    let parts = value.as_str().and_then(|text| text.split_once('='));
    let (name, value) = parts.ok_or("an item is not NAME=VALUE")?;
    Ok(Value::String(format!("{}={}", name.trim(), value.trim())))
}

/// Converts a duration of Go to one of a single unit.
fn duration(text: &str) -> Result<Value, String> {
    let millis = millis(text).ok_or_else(|| format!("{text:?} is not a duration"))?;
    let units = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let (unit, size) = units.into_iter().find(|(_, size)| millis > 0 && millis % size == 0).unwrap_or(("ms", 1));
    Ok(Value::String(format!("{}{unit}", millis / size)))
}

/// Parses a duration of Go (`1h30m0s`, `1.5s`, `250ms`) as whole milliseconds.
fn millis(text: &str) -> Option<u64> {
    let (mut total, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "h" => 3_600_000.0,
            "m" => 60_000.0,
            "s" => 1000.0,
            "ms" => 1.0,
            "us" | "µs" => 0.001,
            _ => return None,
        };
        rest = &rest[end..];
        total += number * unit;
    }
    // A float holds each whole number up to 2^53.
    (!text.is_empty() && total < 9e15).then_some(total as u64)
}

fn level(text: &str) -> Result<Value, String> {
    let level = match text.to_ascii_lowercase().as_str() {
        "panic" | "fatal" | "error" => "error",
        "warn" | "warning" => "warn",
        "info" => "info",
        "debug" => "debug",
        "trace" => "trace",
        _ => return Err(format!("{text:?} is not a level")),
    };
    Ok(Value::String(level.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(conversion: Conversion, value: impl Into<Value>) -> String {
        convert(conversion, &value.into()).expect("converted").map_or("-".to_owned(), |value| value.to_string())
    }

    #[test]
    fn durations_of_go_become_those_of_one_unit() {
        let shown = |value: &str| text(Conversion::Duration, value);
        let all = ["4h0m0s", "1h30m0s", "5m0s", "1.5s", "250ms", "1m0.5s", ""];
        assert_eq!(
            all.map(shown),
            [r#""4h""#, r#""90m""#, r#""5m""#, r#""1500ms""#, r#""250ms""#, r#""60500ms""#, "-"]
        );
        for wrong in ["5", "h", "5 m", "5y", "99999999999999h"] {
            convert(Conversion::Duration, &Value::String(wrong.to_owned())).expect_err(wrong);
        }
    }

    #[test]
    fn values_are_converted_by_their_meaning() {
        assert_eq!(text(Conversion::SystemdDriver, true), r#""systemd""#);
        assert_eq!(text(Conversion::Level, "warning"), r#""warn""#);
        assert_eq!(text(Conversion::Opposite, true), "false");
        assert_eq!(text(Conversion::Limit, -1), "-");
        assert_eq!(text(Conversion::Millionth, 250_000), "0.25");
        assert_eq!(text(Conversion::SysctlIfFalse("a=b"), true), "-");
        assert_eq!(text(Conversion::SysctlIfFalse("a=b"), false), r#"["a=b"]"#);
        assert_eq!(text(Conversion::Sysctls, vec!["a.b = 0   7"]), r#"["a.b=0   7"]"#);
        assert_eq!(text(Conversion::One, "/etc/certs.d"), r#""/etc/certs.d""#);
        convert(Conversion::One, &Value::String("/a:/b".to_owned())).expect_err("two directories");
        convert(Conversion::Opposite, &Value::Integer(1)).expect_err("not a boolean");
    }
}
