//! Signals by number and name, as signal(7) lists them for x86-64 and arm64. One table for every command and API.

use std::fmt;

/// Names without `SIG` in the order of their numbers, from 1.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];
/// Second names of the same signals.
const ALIASES: [(&str, i32); 4] = [("IOT", 6), ("CLD", 17), ("POLL", 29), ("UNUSED", 31)];
/// First real-time signal that programs may use: the C libraries reserve 32 and 33 (signal(7)).
const RTMIN: i32 = 34;
/// Last signal of the kernel.
const RTMAX: i32 = 64;

/// A signal of the kernel, 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(i32);

impl Signal {
    /// SIGKILL.
    pub const KILL: Self = Self(libc::SIGKILL);
    /// SIGTERM.
    pub const TERM: Self = Self(libc::SIGTERM);

    /// The signal of this number; `None` outside 1 to 64.
    pub fn from_number(number: i32) -> Option<Self> {
        (1..=RTMAX).contains(&number).then_some(Self(number))
    }

    /// Parses a number or a name in any case, with or without `SIG`: `15`, `TERM`, `sigterm`, `RTMIN+1`, `SIGRTMAX-2`.
    /// `None` for anything else, `0` included.
    pub fn parse(text: &str) -> Option<Self> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            return text.parse().ok().and_then(Self::from_number);
        }
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let classic = || NAMES.iter().zip(1..).find_map(|(known, number)| (*known == name).then_some(number));
        let alias = || ALIASES.iter().find_map(|(known, number)| (*known == name).then_some(*number));
        classic().or_else(alias).or_else(|| real_time(name)).map(Self)
    }

    /// The number that kill(2) takes.
    pub fn number(self) -> i32 {
        self.0
    }
}

/// The name with `SIG`: `SIGTERM`, `SIGRTMIN+1`; `signal 32` for the two that C libraries reserve.
impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match usize::try_from(self.0 - 1).ok().and_then(|at| NAMES.get(at)) {
            Some(name) => write!(f, "SIG{name}"),
            None if self.0 < RTMIN => write!(f, "signal {}", self.0),
            None if self.0 == RTMIN => f.write_str("SIGRTMIN"),
            None if self.0 == RTMAX => f.write_str("SIGRTMAX"),
            None if self.0 <= RTMIN + 15 => write!(f, "SIGRTMIN+{}", self.0 - RTMIN),
            None => write!(f, "SIGRTMAX-{}", RTMAX - self.0),
        }
    }
}

/// `RTMIN`, `RTMIN+n`, `RTMAX`, `RTMAX-n`, within both ends.
fn real_time(name: &str) -> Option<i32> {
    let offset = |text: &str, sign: char| match text.strip_prefix(sign) {
        Some(digits) if digits.starts_with(|first: char| first.is_ascii_digit()) => digits.parse::<i32>().ok(),
        None if text.is_empty() => Some(0),
        _ => None,
    };
    let number = match name.strip_prefix("RTMIN") {
        Some(rest) => RTMIN.checked_add(offset(rest, '+')?)?,
        None => RTMAX.checked_sub(offset(name.strip_prefix("RTMAX")?, '-')?)?,
    };
    (RTMIN..=RTMAX).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::Signal;

    #[test]
    fn names_and_numbers_are_parsed() {
        let cases = [
            ("TERM", 15),
            ("SIGKILL", 9),
            ("sigusr1", 10),
            ("15", 15),
            ("64", 64),
            ("SIGIOT", 6),
            ("CLD", 17),
            ("POLL", 29),
            ("SYS", 31),
            ("RTMIN", 34),
            ("RTMIN+1", 35),
            ("SIGRTMIN+30", 64),
            ("rtmax-1", 63),
            ("SIGRTMAX", 64),
        ];
        for (text, number) in cases {
            assert_eq!(Signal::parse(text).map(Signal::number), Some(number), "{text}");
        }
        let invalid = [
            "",
            "0",
            "-1",
            "+9",
            "65",
            "99999999999",
            "NOPE",
            "SIG",
            "SIG9",
            "RTMIN+31",
            "RTMAX+1",
            "RTMIN-1",
            "RTMAX-31",
            "RTMIN+",
            "RTMIN++1",
        ];
        for text in invalid {
            assert_eq!(Signal::parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_signal_is_parsed_from_its_name() {
        for number in (1..=31).chain(34..=64) {
            let signal = Signal::from_number(number).expect("a signal");
            assert_eq!(Signal::parse(&signal.to_string()), Some(signal));
            assert_eq!(signal.number(), libc_number(&signal.to_string()).unwrap_or(number), "{signal}");
        }
        assert_eq!(Signal::from_number(32).expect("a signal").to_string(), "signal 32");
        assert_eq!([0, 65, -1].map(Signal::from_number), [None; 3]);
    }

    /// The C library's number of the signals whose names it has.
    fn libc_number(name: &str) -> Option<i32> {
        Some(match name {
            "SIGABRT" => libc::SIGABRT,
            "SIGBUS" => libc::SIGBUS,
            "SIGUSR1" => libc::SIGUSR1,
            "SIGUSR2" => libc::SIGUSR2,
            "SIGCHLD" => libc::SIGCHLD,
            "SIGCONT" => libc::SIGCONT,
            "SIGSTOP" => libc::SIGSTOP,
            "SIGIO" => libc::SIGIO,
            "SIGPWR" => libc::SIGPWR,
            "SIGSYS" => libc::SIGSYS,
            "SIGRTMIN" => libc::SIGRTMIN(),
            "SIGRTMAX" => libc::SIGRTMAX(),
            _ => return None,
        })
    }
}
