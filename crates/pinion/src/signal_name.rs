/// Names of the standard signals in the order of their numbers, starting at 1 (signal(7)).
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

/// Parses a signal number (1 to 64) or name: `9`, `KILL`, `SIGKILL` and `sigkill` are all 9.
pub(crate) fn parse(text: &str) -> Result<i32, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let signal = match name.parse::<i32>() {
        Ok(number) => Some(number).filter(|n| (1..=64).contains(n)),
        Err(_) => NAMES.iter().position(|known| *known == name).and_then(|index| i32::try_from(index + 1).ok()),
    };
    signal.ok_or_else(|| format!("{text:?} is not a signal (1 to 64, or a name like TERM)"))
}

/// Returns the name of a standard signal without `SIG` (15 is `TERM`), or an empty string for any other number.
pub(crate) fn name(number: i32) -> &'static str {
    usize::try_from(number - 1).ok().and_then(|index| NAMES.get(index)).copied().unwrap_or("")
}

#[cfg(test)]
mod tests {
    #[test]
    fn signals_are_parsed_from_names_and_numbers() {
        assert_eq!([super::parse("9"), super::parse("SIGTERM"), super::parse("usr1")], [Ok(9), Ok(15), Ok(10)]);
        assert!(super::parse("65").is_err() && super::parse("NOPE").is_err() && super::parse("0").is_err());
    }
}
