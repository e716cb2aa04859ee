//! Parses signals by name and number.

use syscall::signal::Signal;

use crate::failure::Failure;

/// Parses a signal: `TERM`, `SIGTERM`, `term`, `15`, `RTMIN+1`. 0 is valid: with kill(2) it only checks that the
/// process exists.
pub(crate) fn parse(text: &str) -> Result<i32, Failure> {
    if text == "0" {
        return Ok(0);
    }
    Signal::parse(text).map(Signal::number).ok_or_else(|| Failure::usage(format!("unknown signal {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn names_and_numbers_are_parsed() {
        for (text, number) in
            [("TERM", 15), ("SIGKILL", 9), ("sigusr1", 10), ("15", 15), ("0", 0), ("RTMIN+1", 35), ("SIGRTMAX", 64)]
        {
            assert_eq!(parse(text).unwrap(), number, "{text}");
        }
        for text in ["", "-1", "65", "NOPE", "-9", "RTMIN+99"] {
            assert!(parse(text).unwrap_err().message.contains("unknown signal"), "{text}");
        }
    }
}
