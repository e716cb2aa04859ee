//! Checks the log of a victim: every line once, in order, and each gap accounted for.

use std::{fs, path::Path};

/// What a victim's log holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogCheck {
    /// Lines that are there.
    pub(crate) lines: u64,
    /// Lines that are missing where the log says that output was dropped.
    pub(crate) dropped: u64,
    /// Whether the victim's last line is there.
    pub(crate) complete: bool,
}

/// Reads a victim's log.
///
/// # Errors
/// A line that is lost, doubled or torn.
pub(crate) fn check(path: &Path) -> Result<LogCheck, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("read {}: {error}", path.display()))?;
    check_text(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn check_text(text: &str) -> Result<LogCheck, String> {
    let mut found = LogCheck::default();
    let (mut last, mut noted) = (0u64, false);
    for line in text.lines() {
        let content = line.splitn(4, ' ').nth(3).ok_or_else(|| format!("torn line {line:?} after line {last}"))?;
        if content.starts_with("[pinmon: ") {
            noted = true;
            continue;
        }
        let (word, number) = content.split_once(' ').unwrap_or((content, ""));
        let number: u64 = number.parse().map_err(|_| format!("unknown line {line:?} after line {last}"))?;
        let expected = last + u64::from(word == "line");
        match (word, number) {
            (_, number) if found.complete || number < expected => {
                return Err(format!("{content:?} after line {last}: doubled"));
            }
            (_, number) if number > expected && !noted => return Err(format!("{content:?} after line {last}: lost")),
            ("total", number) => {
                found.dropped += number - last;
                found.complete = true;
            }
            (_, number) => {
                found.dropped += number - expected;
                found.lines += 1;
                last = number;
                noted = false;
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> Result<LogCheck, String> {
        check_text(&lines.iter().map(|line| format!("2026-11-22T10:00:00Z stdout F {line}\n")).collect::<String>())
    }

    #[test]
    fn a_gap_needs_a_notice() {
        let whole = LogCheck { lines: 2, dropped: 0, complete: true };
        assert_eq!(log(&["line 1", "line 2", "total 2"]), Ok(whole));
        assert!(log(&["line 1", "line 3"]).is_err());
        assert!(log(&["line 1", "line 1"]).is_err());
        assert!(log(&["line 1", "total 2"]).is_err());
        let gap = LogCheck { lines: 2, dropped: 3, complete: true };
        assert_eq!(log(&["line 1", "[pinmon: 9 bytes", "line 5", "total 5"]), Ok(gap));
    }
}
