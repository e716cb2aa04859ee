//! Checks the log of a victim: every line once and in order, and a notice for each gap.

use std::{fs, path::Path};

/// The content of the log of a victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogCheck {
    /// Number of lines.
    pub(crate) lines: u64,
    /// Number of missing lines, at places where the log contains a notice about dropped output.
    pub(crate) dropped: u64,
    /// Whether the log contains the last line of the victim.
    pub(crate) complete: bool,
}

/// Reads and checks the log of a victim.
///
/// # Errors
/// A line that is lost, duplicated or incomplete.
pub(crate) fn check(path: &Path) -> Result<LogCheck, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("read {}: {error}", path.display()))?;
    check_text(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn check_text(text: &str) -> Result<LogCheck, String> {
    let mut result = LogCheck::default();
    let (mut last, mut has_notice) = (0u64, false);
    for line in text.lines() {
        let content =
            line.splitn(4, ' ').nth(3).ok_or_else(|| format!("incomplete line {line:?} after line {last}"))?;
        if content.starts_with("[pinmon: ") {
            has_notice = true;
            continue;
        }
        let (word, number) = content.split_once(' ').unwrap_or((content, ""));
        let number: u64 = number.parse().map_err(|_| format!("unknown line {line:?} after line {last}"))?;
        let expected = last + u64::from(word == "line");
        match (word, number) {
            (_, number) if result.complete || number < expected => {
                return Err(format!("{content:?} after line {last}: duplicated"));
            }
            (_, number) if number > expected && !has_notice => {
                return Err(format!("{content:?} after line {last}: lost"));
            }
            ("total", number) => {
                result.dropped += number - last;
                result.complete = true;
            }
            (_, number) => {
                result.dropped += number - expected;
                result.lines += 1;
                last = number;
                has_notice = false;
            }
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> Result<LogCheck, String> {
        check_text(&lines.iter().map(|line| format!("2026-11-22T10:00:00Z stdout F {line}\n")).collect::<String>())
    }

    #[test]
    fn a_gap_requires_a_notice() {
        let complete = LogCheck { lines: 2, dropped: 0, complete: true };
        assert_eq!(log(&["line 1", "line 2", "total 2"]), Ok(complete));
        assert!(log(&["line 1", "line 3"]).is_err());
        assert!(log(&["line 1", "line 1"]).is_err());
        assert!(log(&["line 1", "total 2"]).is_err());
        let gap = LogCheck { lines: 2, dropped: 3, complete: true };
        assert_eq!(log(&["line 1", "[pinmon: 9 bytes", "line 5", "total 5"]), Ok(gap));
    }
}
