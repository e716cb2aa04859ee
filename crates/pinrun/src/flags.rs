//! An option parser compatible with runc's: one dash or two, `--name value` or `--name=value`, switches with `=true` or
//! `=false`, no combined short options.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use crate::failure::Failure;

/// An option that a command accepts.
#[derive(Debug)]
pub(crate) struct Flag {
    /// All names, the long one first.
    pub(crate) names: &'static [&'static str],
    pub(crate) takes_value: bool,
}

/// Returns an option that takes a value.
pub(crate) const fn value(names: &'static [&'static str]) -> Flag {
    Flag { names, takes_value: true }
}

/// Returns an option without a value.
pub(crate) const fn switch(names: &'static [&'static str]) -> Flag {
    Flag { names, takes_value: false }
}

/// Where options may appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Before the first word that is not an option: the rest belongs to a command.
    Strict,
    /// Anywhere among the other words.
    Mixed,
}

/// A parsed command line.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    given: Vec<(&'static str, OsString)>,
    /// The words that are not options.
    pub(crate) words: Vec<OsString>,
}

impl Flags {
    pub(crate) fn parse(
        arguments: impl IntoIterator<Item = OsString>,
        known: &[Flag],
        order: Order,
    ) -> Result<Self, Failure> {
        let mut result = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let Some(name) = option_name(&argument) else {
                result.words.push(argument);
                if order == Order::Strict {
                    break;
                }
                continue;
            };
            if name.is_empty() {
                break;
            }
            let (name, attached) = match name.iter().position(|byte| *byte == b'=') {
                Some(at) => (&name[..at], Some(OsString::from_vec(name[at + 1..].to_vec()))),
                None => (name, None),
            };
            let flag = known.iter().find(|flag| flag.names.iter().any(|known| known.as_bytes() == name));
            let shown = String::from_utf8_lossy(name);
            if flag.is_none() && matches!(name, b"help" | b"h") {
                return Err(Failure::help(describe(known)));
            }
            let flag = flag.ok_or_else(|| Failure::usage(format!("flag provided but not defined: -{shown}")))?;
            let value = match (flag.takes_value, attached) {
                (_, Some(value)) => value,
                (false, None) => "true".into(),
                (true, None) => {
                    arguments.next().ok_or_else(|| Failure::usage(format!("flag needs an argument: -{shown}")))?
                }
            };
            result.given.push((flag.names[0], value));
        }
        result.words.extend(arguments);
        Ok(result)
    }

    /// Returns the last value of an option.
    pub(crate) fn value(&self, name: &str) -> Option<&OsStr> {
        self.values(name).next_back()
    }

    /// Returns every value of an option, in order.
    pub(crate) fn values(&self, name: &str) -> impl DoubleEndedIterator<Item = &OsStr> {
        self.given.iter().filter(move |(given, _)| *given == name).map(|(_, value)| value.as_os_str())
    }

    /// Returns the last value of an option as UTF-8 text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Failure> {
        let invalid = |value: &'_ OsStr| -> Result<(), Failure> {
            Err(Failure::usage(format!("invalid value {value:?} for flag -{name}: not UTF-8")))
        };
        match self.value(name) {
            None => Ok(None),
            Some(value) => match value.to_str() {
                Some(value) => Ok(Some(value)),
                None => invalid(value).map(|()| None),
            },
        }
    }

    /// Parses the last value of an option as a number or another type.
    pub(crate) fn parsed<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(Failure::usage(format!("invalid value {text:?} for flag -{name}"))),
        }
    }

    /// Reports whether a switch is on.
    pub(crate) fn is_on(&self, name: &str) -> Result<bool, Failure> {
        match self.value(name).map(OsStr::as_bytes) {
            None | Some(b"false" | b"0" | b"f" | b"F" | b"FALSE" | b"False") => Ok(false),
            Some(b"true" | b"1" | b"t" | b"T" | b"TRUE" | b"True") => Ok(true),
            Some(other) => {
                let other = String::from_utf8_lossy(other);
                Err(Failure::usage(format!("invalid boolean value {other:?} for flag -{name}")))
            }
        }
    }

    /// Returns the container id, which must be the only word.
    pub(crate) fn id(&self) -> Result<&str, Failure> {
        match self.words.as_slice() {
            [id] => text(id),
            [] => Err(Failure::usage("a container id is required")),
            [_, more, ..] => Err(Failure::usage(format!("unexpected argument {more:?} after the container id"))),
        }
    }
}

/// Formats the options for `--help`, one per line.
fn describe(known: &[Flag]) -> String {
    let line = |flag: &Flag| {
        let value = if flag.takes_value { " value" } else { "" };
        let names = flag.names.iter().map(|name| format!("{}{name}{value}", if name.len() > 1 { "--" } else { "-" }));
        format!("   {}\n", names.collect::<Vec<_>>().join(", "))
    };
    known.iter().map(line).collect()
}

/// Returns a word as UTF-8 text.
pub(crate) fn text(word: &OsStr) -> Result<&str, Failure> {
    word.to_str().ok_or_else(|| Failure::usage(format!("{word:?} is not UTF-8")))
}

/// Returns an option's name without its dashes: empty for `--`, `None` for a word that is not an option.
fn option_name(argument: &OsStr) -> Option<&[u8]> {
    match argument.as_bytes() {
        [b'-', b'-', name @ ..] => Some(name),
        [b'-', name @ ..] if !name.is_empty() => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Flag; 3] = [value(&["bundle", "b"]), switch(&["force", "f"]), value(&["env", "e"])];

    fn parse(words: &[&str], order: Order) -> Result<Flags, Failure> {
        Flags::parse(words.iter().map(OsString::from), &KNOWN, order)
    }

    #[test]
    fn options_have_one_or_two_dashes_and_attached_or_separate_values() {
        let flags = parse(&["-bundle=/x", "--b", "/y", "--force", "-e", "A=1", "-e=B=2", "id"], Order::Strict).unwrap();
        assert_eq!(flags.text("bundle").unwrap(), Some("/y"));
        assert!(flags.is_on("force").unwrap());
        assert_eq!(flags.values("env").collect::<Vec<_>>(), ["A=1", "B=2"]);
        assert_eq!(flags.id().unwrap(), "id");
        assert!(!parse(&["--force=false", "id"], Order::Strict).unwrap().is_on("force").unwrap());
    }

    #[test]
    fn options_after_the_first_word_depend_on_the_order() {
        let strict = parse(&["id", "-f", "--", "x"], Order::Strict).unwrap();
        assert_eq!(strict.words, ["id", "-f", "--", "x"]);
        let mixed = parse(&["id", "-f", "--", "-x"], Order::Mixed).unwrap();
        assert!(mixed.is_on("force").unwrap());
        assert_eq!(mixed.words, ["id", "-x"]);
    }

    #[test]
    fn errors_name_the_option() {
        assert!(parse(&["--nope"], Order::Mixed).unwrap_err().message.contains("nope"));
        assert!(parse(&["--bundle"], Order::Mixed).unwrap_err().message.contains("bundle"));
        assert!(parse(&["-f=x"], Order::Mixed).unwrap().is_on("force").is_err());
        assert!(parse(&[], Order::Mixed).unwrap().id().is_err());
    }
}
