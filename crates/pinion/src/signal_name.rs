/// Names of the classic signals in the order of their numbers, from 1 (signal(7)).
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

/// `9`, `KILL`, `SIGKILL`, `sigkill` → 9.
pub(crate) fn parse(text: &str) -> Result<i32, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let found = match name.parse::<i32>() {
        Ok(number) => Some(number).filter(|n| (1..=64).contains(n)),
        Err(_) => NAMES.iter().position(|known| *known == name).and_then(|at| i32::try_from(at + 1).ok()),
    };
    found.ok_or_else(|| format!("{text:?} is not a signal (1 to 64, or a name like TERM)"))
}

/// 15 → `TERM`; empty for what has no classic name.
pub(crate) fn name(number: i32) -> &'static str {
    usize::try_from(number - 1).ok().and_then(|at| NAMES.get(at)).copied().unwrap_or("")
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_and_numbers() {
        assert_eq!([super::parse("9"), super::parse("SIGTERM"), super::parse("usr1")], [Ok(9), Ok(15), Ok(10)]);
        assert!(super::parse("65").is_err() && super::parse("NOPE").is_err() && super::parse("0").is_err());
    }
}
