//! Encoding of event sources in the 64 bits of epoll.

use crate::stream::StreamKind;

/// Source of an event. Serial numbers are never reused, so a late event is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Listener,
    Signals,
    Link,
    /// Output of a container.
    Stream(u64, StreamKind),
    /// Socket of a child that is being set up, of a maker or of a hook runner.
    Sync(u64),
    /// Exit of a process that is not a child.
    Pidfd(u64),
    /// Pipe of an attached client.
    Tap(u64, u8),
    /// Socket of a log writer.
    Writer(u64),
    /// Alarm of a log writer.
    Alarm(u64),
}

impl Token {
    /// Encodes the token for epoll.
    pub(crate) fn word(self) -> u64 {
        let (serial, part, number) = match self {
            Self::Listener => (0, 0, 0),
            Self::Signals => (0, 1, 0),
            Self::Link => (0, 2, 0),
            Self::Stream(serial, StreamKind::Stdout) => (serial, 3, 0),
            Self::Stream(serial, StreamKind::Stderr) => (serial, 4, 0),
            Self::Sync(serial) => (serial, 5, 0),
            Self::Pidfd(serial) => (serial, 6, 0),
            Self::Tap(serial, number) => (serial, 7, u64::from(number)),
            Self::Writer(serial) => (serial, 8, 0),
            Self::Alarm(serial) => (serial, 9, 0),
        };
        serial << 16 | part << 8 | number
    }

    /// Decodes the token of an event.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let (serial, number) = (word >> 16, word as u8);
        Some(match (word >> 8) as u8 {
            0 => Self::Listener,
            1 => Self::Signals,
            2 => Self::Link,
            3 => Self::Stream(serial, StreamKind::Stdout),
            4 => Self::Stream(serial, StreamKind::Stderr),
            5 => Self::Sync(serial),
            6 => Self::Pidfd(serial),
            7 => Self::Tap(serial, number),
            8 => Self::Writer(serial),
            9 => Self::Alarm(serial),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_the_kernel() {
        let serial = (1 << 47) + 5;
        for token in [
            Token::Listener,
            Token::Signals,
            Token::Link,
            Token::Stream(serial, StreamKind::Stdout),
            Token::Stream(serial, StreamKind::Stderr),
            Token::Sync(serial),
            Token::Pidfd(serial),
            Token::Tap(serial, 255),
            Token::Writer(serial),
            Token::Alarm(serial),
        ] {
            assert_eq!(Token::from_word(token.word()), Some(token));
        }
    }
}
