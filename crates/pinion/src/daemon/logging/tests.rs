use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tracing::Level;

use super::{super::config::LogFormat, line::Line, *};

fn written(format: LogFormat, journal: bool, message: &str, fields: &[(&str, Value)]) -> String {
    let line = Line {
        at: SystemTime::UNIX_EPOCH + Duration::from_micros(1_767_225_600_000_001),
        level: Level::WARN,
        target: "cri::call",
        message,
        fields: fields.iter().map(|(name, value)| (*name, value)).collect(),
        left_out: 0,
    };
    Style::plain(format, journal).write(&line)
}

#[test]
fn an_event_is_always_one_line() {
    let evil = "x\n<0>reboot\x1b[2J\u{85}";
    let fields = [("image", Value::from(evil)), ("ms", json!(1.5)), ("rpc", json!("PullImage"))];
    let human = written(LogFormat::Human, false, evil, &fields);
    assert_eq!(human.matches('\n').count(), 1, "{human}");
    assert!(!human.trim_end().chars().any(char::is_control), "{human:?}");
    assert!(human.starts_with("2026-01-01T00:00:00.000001Z  WARN x\\n<0>reboot"), "{human}");
    assert!(human.trim_end().ends_with("ms=1.5 rpc=PullImage"), "{human}");
    let object: Value = serde_json::from_str(&written(LogFormat::Json, false, evil, &fields)).expect("JSON");
    assert_eq!((&object["message"], &object["image"]), (&json!(evil), &json!(evil)));
    assert_eq!((&object["level"], &object["ms"]), (&json!("warn"), &json!(1.5)));
    assert_eq!(object["time"], "2026-01-01T00:00:00.000001Z");
}

#[test]
fn the_journal_gets_a_priority_and_no_time() {
    assert_eq!(written(LogFormat::Human, true, "slow", &[]), "<4> WARN slow\n");
    assert!(written(LogFormat::Json, true, "slow", &[]).starts_with("<4>{\"time\":"));
}

#[test]
fn long_values_are_truncated() {
    let long = "ä".repeat(1 << 20);
    let fields = [("image", Value::from(long.as_str()))];
    for format in [LogFormat::Human, LogFormat::Json] {
        assert!(written(format, false, &long, &fields).len() < 8192);
    }
}
