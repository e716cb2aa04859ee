//! Identity of an attachment: a sandbox and one of its interfaces.

use std::fmt;

use crate::Error;

/// The interface of the primary attachment.
pub(crate) const INTERFACE: &str = "eth0";

/// Separates the sandbox from the interface. Neither can contain it.
const SEPARATOR: char = '@';
/// Maximum length of an interface name (`IFNAMSIZ` without the final zero).
const INTERFACE_MAX: usize = 15;

/// A sandbox and one of its interfaces, as text: `SANDBOX` for `eth0`, and `SANDBOX@INTERFACE` for any other interface.
/// It names the record of the attachment, the owner of its ports and, hashed, its link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AttachmentKey {
    text: String,
    sandbox: usize,
}

impl AttachmentKey {
    /// Returns the key of a sandbox's attachment to the network of all pods.
    pub(crate) fn primary(sandbox: &str) -> Self {
        Self { text: sandbox.to_owned(), sandbox: sandbox.len() }
    }

    pub(crate) fn new(sandbox: &str, interface: &str) -> Self {
        match interface {
            INTERFACE => Self::primary(sandbox),
            _ => Self { text: format!("{sandbox}{SEPARATOR}{interface}"), sandbox: sandbox.len() },
        }
    }

    /// Parses the text of a key.
    ///
    /// # Errors
    /// When the sandbox or the interface is not valid.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let (sandbox, interface) = text.split_once(SEPARATOR).unwrap_or((text, INTERFACE));
        valid_sandbox(sandbox)?;
        match is_interface(interface) {
            true => Ok(Self { text: text.to_owned(), sandbox: sandbox.len() }),
            false => Err(Error::Sandbox(text.to_owned())),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn sandbox(&self) -> &str {
        &self.text[..self.sandbox]
    }

    pub(crate) fn interface(&self) -> &str {
        self.text.get(self.sandbox + SEPARATOR.len_utf8()..).unwrap_or(INTERFACE)
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.sandbox == self.text.len()
    }
}

impl fmt::Display for AttachmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Rejects sandbox ids that cannot be part of a file name.
pub(crate) fn valid_sandbox(id: &str) -> Result<(), Error> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let valid = (1..=128).contains(&id.len()) && !id.starts_with('.') && id.bytes().all(plain);
    if valid { Ok(()) } else { Err(Error::Sandbox(id.to_owned())) }
}

/// Reports whether a name may be that of an interface that a pod requests. The kernel permits more characters; these
/// are names that can also be part of a file name.
pub(crate) fn is_interface(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=INTERFACE_MAX).contains(&name.len()) && !matches!(name, "." | "..") && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed_as_they_are_written() {
        let (primary, secondary) = (AttachmentKey::new("pod", "eth0"), AttachmentKey::new("pod", "net1"));
        assert_eq!((primary.as_str(), secondary.as_str()), ("pod", "pod@net1"));
        assert_eq!(primary, AttachmentKey::primary("pod"));
        for key in [primary, secondary] {
            let parsed = AttachmentKey::parse(key.as_str()).expect("valid");
            assert_eq!((parsed.sandbox(), parsed.interface()), ("pod", key.interface()));
            assert_eq!(parsed, key);
        }
        for invalid in ["", "@net1", "pod@", "pod@a@b", "pod@a/b", "pod@..", "pod@0123456789abcdef", ".pod@net1"] {
            assert!(AttachmentKey::parse(invalid).is_err(), "{invalid}");
        }
    }
}
