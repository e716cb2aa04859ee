//! Formats log lines.

use std::{
    fmt::Write,
    io::IsTerminal,
    os::fd::AsFd,
    sync::atomic::{AtomicBool, Ordering},
    time::SystemTime,
};

use serde_json::Value;
use tracing::Level;

use super::{super::config::LogFormat, journal};
use crate::timestamp;

/// Maximum bytes of a message.
const MESSAGE_MAX: usize = 4096;
/// Maximum bytes of a field.
const FIELD_MAX: usize = 512;

/// The format of log lines.
#[derive(Debug)]
pub(super) struct Style {
    json: AtomicBool,
    colour: bool,
    journal: bool,
}

/// The content of a line.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) at: SystemTime,
    pub(super) level: Level,
    pub(super) target: &'a str,
    pub(super) message: &'a str,
    /// The fields of the event, followed by those of the enclosing spans.
    pub(super) fields: Vec<(&'a str, &'a Value)>,
    /// Number of similar lines that were suppressed before this one.
    pub(super) left_out: u64,
}

impl Style {
    pub(super) fn of(format: LogFormat, stream: &(impl AsFd + IsTerminal)) -> Self {
        Self {
            json: AtomicBool::new(format == LogFormat::Json),
            colour: stream.is_terminal(),
            journal: journal::is_journal(stream),
        }
    }

    #[cfg(test)]
    pub(super) fn plain(format: LogFormat, journal: bool) -> Self {
        Self { json: AtomicBool::new(format == LogFormat::Json), colour: false, journal }
    }

    pub(super) fn set(&self, format: LogFormat) {
        self.json.store(format == LogFormat::Json, Ordering::Relaxed);
    }

    /// Formats the whole line, with a newline.
    pub(super) fn write(&self, line: &Line<'_>) -> String {
        let mut text = String::with_capacity(256);
        if self.journal {
            text.push_str(journal::priority(line.level));
        }
        match self.json.load(Ordering::Relaxed) {
            true => json(&mut text, line),
            false => self.human(&mut text, line),
        }
        text.push('\n');
        text
    }

    /// Formats `2026-01-31T12:00:00.123456Z  WARN stop container: … rpc=StopContainer code=Internal ms=3.1`.
    fn human(&self, text: &mut String, line: &Line<'_>) {
        let (dim, colour, plain) = match (self.colour, line.level) {
            (false, _) => ("", "", ""),
            (true, Level::ERROR) => ("\x1b[2m", "\x1b[31m", "\x1b[0m"),
            (true, Level::WARN) => ("\x1b[2m", "\x1b[33m", "\x1b[0m"),
            (true, Level::INFO) => ("\x1b[2m", "\x1b[32m", "\x1b[0m"),
            (true, _) => ("\x1b[2m", "\x1b[34m", "\x1b[0m"),
        };
        if !self.journal {
            put(text, format_args!("{dim}{}{plain} ", timestamp::format(line.at)));
        }
        put(text, format_args!("{colour}{:>5}{plain} ", line.level));
        push_escaped(text, bounded(line.message, MESSAGE_MAX));
        for (name, value) in &line.fields {
            put(text, format_args!(" {dim}{name}={plain}"));
            match value {
                Value::String(string) if is_word(string) => text.push_str(bounded(string, FIELD_MAX)),
                Value::String(string) => put(text, format_args!("{:?}", bounded(string, FIELD_MAX))),
                other => put(text, format_args!("{other}")),
            }
        }
        if line.left_out > 0 {
            put(text, format_args!(" {dim}left_out={plain}{}", line.left_out));
        }
    }
}

/// Formats
/// `{"time":"…","level":"warn","target":"cri::call","message":"…","rpc":"StopContainer","code":"Internal","ms":3.1}`.
fn json(text: &mut String, line: &Line<'_>) {
    let string = |text: &str| Value::from(text).to_string();
    let (time, level) = (timestamp::format(line.at), line.level.as_str().to_ascii_lowercase());
    let (target, message) = (string(line.target), string(bounded(line.message, MESSAGE_MAX)));
    put(text, format_args!("{{\"time\":\"{time}\",\"level\":\"{level}\",\"target\":{target},\"message\":{message}"));
    for (name, value) in &line.fields {
        put(text, format_args!(",{}:", string(name)));
        match value {
            Value::String(long) => text.push_str(&string(bounded(long, FIELD_MAX))),
            other => put(text, format_args!("{other}")),
        }
    }
    if line.left_out > 0 {
        put(text, format_args!(",\"left_out\":{}", line.left_out));
    }
    text.push('}');
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_./:@+".contains(c))
}

/// Appends a message with its control characters escaped.
fn push_escaped(text: &mut String, message: &str) {
    for c in message.chars() {
        match c.is_control() {
            true => text.extend(c.escape_default()),
            false => text.push(c),
        }
    }
}

/// Truncates a text to at most `max` bytes, at a character boundary.
fn bounded(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = text.write_fmt(arguments);
}
