/// What went wrong with a virtual machine monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// It is not running, or closed the connection.
    Gone,
    /// It did not answer in time.
    Timeout,
    /// It does not keep to the protocol.
    Protocol,
    /// It refused the request.
    Refused {
        /// Class of the error, for example `DeviceNotFound`.
        class: String,
    },
    /// The request is invalid, and was not sent.
    Invalid,
    /// A system call of this process failed.
    System,
}

/// Failure of a request to a virtual machine monitor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation}: {cause}")]
pub struct Error {
    /// What went wrong.
    pub kind: ErrorKind,
    /// The operation and its object, for people.
    pub operation: String,
    /// The cause, for people: the message of the virtual machine monitor, if it sent one.
    pub cause: String,
}

/// Maximum number of bytes of a text of a virtual machine monitor that are reported.
const TEXT_MAX: usize = 1024;

impl Error {
    pub(crate) fn new(kind: ErrorKind, operation: impl Into<String>, cause: impl ToString) -> Self {
        Self { kind, operation: operation.into(), cause: printable(&cause.to_string()) }
    }

    /// Whether the virtual machine monitor refused the request with an error of this class.
    pub(crate) fn is_refusal(&self, expected: &str) -> bool {
        matches!(&self.kind, ErrorKind::Refused { class } if class == expected)
    }

    /// Puts the operation that failed in front: `add port web: QMP command device_add: …`.
    pub(crate) fn during(self, operation: impl std::fmt::Display) -> Self {
        Self { operation: format!("{operation}: {}", self.operation), ..self }
    }
}

/// Returns the beginning of a text without control characters, which may be all that it begins with.
pub(crate) fn printable(text: &str) -> String {
    let mut printable = String::new();
    for character in text.chars().filter(|character| !character.is_control()) {
        if printable.len() + character.len_utf8() > TEXT_MAX {
            break;
        }
        printable.push(character);
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_bounded_and_printable() {
        let error = Error::new(
            ErrorKind::Gone,
            "connect to VMM",
            format!("{}a\nb{}", "\x1b".repeat(TEXT_MAX), "é".repeat(TEXT_MAX)),
        );
        assert!(error.cause.starts_with("abé") && error.cause.len() > TEXT_MAX / 2 && error.cause.len() <= TEXT_MAX);
        assert!(error.during("start pod web").to_string().starts_with("start pod web: connect to VMM: abé"));
    }
}
