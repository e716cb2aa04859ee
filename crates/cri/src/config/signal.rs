use cri_proto::v1;

/// Names of the standard signals, in the order of their numbers on x86-64 and arm64, from 1 (signal(7)).
const CLASSIC: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];
/// Synonyms of standard signals.
const ALIASES: [(&str, i32); 3] = [("CLD", 17), ("IOT", 6), ("POLL", 29)];
/// Real-time signals that the C library does not use itself.
const REALTIME: std::ops::RangeInclusive<i32> = 34..=64;

/// Returns the kernel's number of a signal; `None` for `SIGNAL_RUNTIME_DEFAULT`.
pub(crate) fn number(signal: v1::Signal) -> Option<i32> {
    let name = signal.as_str_name().strip_prefix("SIGNAL_SIG")?;
    if let Some(at) = CLASSIC.iter().position(|classic| *classic == name) {
        return i32::try_from(at + 1).ok();
    }
    if let Some((_, number)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
        return Some(*number);
    }
    let (first, last) = (*REALTIME.start(), *REALTIME.end());
    match (name.strip_prefix("RTMINPLUS"), name.strip_prefix("RTMAXMINUS")) {
        (Some(plus), _) => plus.parse::<i32>().ok().map(|n| first + n),
        (_, Some(minus)) => minus.parse::<i32>().ok().map(|n| last - n),
        _ if name == "RTMIN" => Some(first),
        _ => Some(last),
    }
}

/// Returns the enum value for a signal number of the kernel.
pub(crate) fn message(signal: i32) -> v1::Signal {
    (1..=65)
        .filter_map(|value| v1::Signal::try_from(value).ok())
        .find(|s| number(*s) == Some(signal))
        .unwrap_or_default()
}
