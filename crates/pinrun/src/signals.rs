//! Parses signals by name and number.

use crate::failure::Failure;

const NAMES: [(&str, i32); 34] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ILL", libc::SIGILL),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("IOT", libc::SIGABRT),
    ("BUS", libc::SIGBUS),
    ("FPE", libc::SIGFPE),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("STKFLT", libc::SIGSTKFLT),
    ("CHLD", libc::SIGCHLD),
    ("CLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    ("POLL", libc::SIGIO),
    ("PWR", libc::SIGPWR),
    ("SYS", libc::SIGSYS),
];

/// The first and the last real-time signal, in the kernel's numbering.
const REAL_TIME: (i32, i32) = (34, 64);

/// Parses a signal: `TERM`, `SIGTERM`, `term`, `15`, `RTMIN+1`. 0 is valid: with kill(2) it only checks that the
/// process exists.
pub(crate) fn parse(text: &str) -> Result<i32, Failure> {
    let unknown = || Failure::usage(format!("unknown signal {text:?}"));
    if let Ok(number) = text.parse::<i32>() {
        return if (0..=REAL_TIME.1).contains(&number) { Ok(number) } else { Err(unknown()) };
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some((_, number)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Ok(*number);
    }
    let offset = |rest: &str| if rest.is_empty() { Some(0) } else { rest.parse::<i32>().ok() };
    let number = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
        (Some(rest), _) => offset(rest).map(|offset| REAL_TIME.0 + offset),
        (_, Some(rest)) => offset(rest).map(|offset| REAL_TIME.1 + offset),
        _ => None,
    };
    number.filter(|number| (REAL_TIME.0..=REAL_TIME.1).contains(number)).ok_or_else(unknown)
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
