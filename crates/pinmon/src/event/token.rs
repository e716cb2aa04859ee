//! Encoding of event sources in the 64 bits of epoll.

use serde::{Deserialize, Serialize};

use crate::stream::StreamKind;

/// Source of an event: the component that handles it, and the serial number of its object. Serial numbers are never
/// reused, so a late event is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Token {
    Listener,
    Signals,
    /// Connection to the daemon; in a log writer, that to the monitor.
    Link,
    /// Socket of a container that is being set up.
    Container(u64),
    /// Exit of a container's process that is not a child.
    Pidfd(u64),
    /// Socket of an exec that has not reached execve.
    Exec(u64),
    /// Socket of a child that creates the namespaces of a pod.
    NamespaceMaker(u64),
    /// Socket of a child that runs hooks.
    Hooks(u64),
    /// Socket of a log writer.
    Writer(u64),
    /// Alarm of a log writer.
    Alarm(u64),
    /// In a log writer: output of a container.
    Stream(u64, StreamKind),
    /// In a log writer: pipe of an attached client.
    Tap(u64, u8),
}

impl Token {
    /// Returns the serial number of the object; 0 if there is only one object of its kind.
    pub(crate) fn serial(self) -> u64 {
        match self {
            Self::Listener | Self::Signals | Self::Link => 0,
            Self::Container(serial)
            | Self::Pidfd(serial)
            | Self::Exec(serial)
            | Self::NamespaceMaker(serial)
            | Self::Hooks(serial)
            | Self::Writer(serial)
            | Self::Alarm(serial)
            | Self::Stream(serial, _)
            | Self::Tap(serial, _) => serial,
        }
    }

    /// Encodes the token for epoll.
    pub(super) fn word(self) -> u64 {
        let (kind, number) = match self {
            Self::Listener => (0, 0),
            Self::Signals => (1, 0),
            Self::Link => (2, 0),
            Self::Stream(_, StreamKind::Stdout) => (3, 0),
            Self::Stream(_, StreamKind::Stderr) => (4, 0),
            Self::Container(_) => (5, 0),
            Self::Pidfd(_) => (6, 0),
            Self::Tap(_, number) => (7, u64::from(number)),
            Self::Writer(_) => (8, 0),
            Self::Alarm(_) => (9, 0),
            Self::Exec(_) => (10, 0),
            Self::NamespaceMaker(_) => (11, 0),
            Self::Hooks(_) => (12, 0),
        };
        self.serial() << 16 | kind << 8 | number
    }

    /// Decodes the token of an event.
    pub(super) fn from_word(word: u64) -> Option<Self> {
        let (serial, number) = (word >> 16, word as u8);
        Some(match (word >> 8) as u8 {
            0 => Self::Listener,
            1 => Self::Signals,
            2 => Self::Link,
            3 => Self::Stream(serial, StreamKind::Stdout),
            4 => Self::Stream(serial, StreamKind::Stderr),
            5 => Self::Container(serial),
            6 => Self::Pidfd(serial),
            7 => Self::Tap(serial, number),
            8 => Self::Writer(serial),
            9 => Self::Alarm(serial),
            10 => Self::Exec(serial),
            11 => Self::NamespaceMaker(serial),
            12 => Self::Hooks(serial),
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
            Token::Container(serial),
            Token::Pidfd(serial),
            Token::Exec(serial),
            Token::NamespaceMaker(serial),
            Token::Hooks(serial),
            Token::Tap(serial, 255),
            Token::Writer(serial),
            Token::Alarm(serial),
        ] {
            assert_eq!(Token::from_word(token.word()), Some(token));
        }
    }
}
