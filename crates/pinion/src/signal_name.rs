use pod::Signal;

/// Parses a signal number (1 to 64) or name: `9`, `KILL`, `SIGKILL` and `sigkill` are all 9, `RTMIN+1` is 35.
pub(crate) fn parse(text: &str) -> Result<i32, String> {
    let signal = Signal::parse(text).map(Signal::number);
    signal.ok_or_else(|| format!("{text:?} is not a signal (1 to 64, or a name like TERM or RTMIN+1)"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn signals_are_parsed_from_names_and_numbers() {
        assert_eq!(["9", "SIGTERM", "usr1", "RTMIN+1"].map(super::parse), [9, 15, 10, 35].map(Ok));
        assert!(super::parse("65").is_err() && super::parse("NOPE").is_err() && super::parse("0").is_err());
    }
}
