use std::{fmt::Display, io};

use syscall::error_text::error_text;

/// Category of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The spec or the inputs are invalid; nothing was changed.
    Invalid,
    /// The program of the container or the exec was not found or is not executable.
    Executable,
    /// The container to join has ended, or is ending.
    NotRunning,
    /// A system call failed.
    System,
}

/// An error: the operation, its object and the cause, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The category.
    pub kind: ErrorKind,
    /// The message to show.
    pub message: String,
}

impl Error {
    pub(crate) fn invalid(message: impl Display) -> Self {
        Self { kind: ErrorKind::Invalid, message: message.to_string() }
    }

    pub(crate) fn executable(message: impl Display) -> Self {
        Self { kind: ErrorKind::Executable, message: message.to_string() }
    }

    pub(crate) fn system(operation: impl Display, cause: impl Into<io::Error>) -> Self {
        Self { kind: ErrorKind::System, message: format!("{operation}: {}", error_text(&cause.into())) }
    }

    /// The process whose namespaces were to be joined has exited.
    pub(crate) fn not_running(operation: &str) -> Self {
        Self { kind: ErrorKind::NotRunning, message: format!("{operation}: the container is not running") }
    }

    /// Prefixes the message with the surrounding operation.
    pub(crate) fn within(self, operation: impl Display) -> Self {
        Self { kind: self.kind, message: format!("{operation}: {}", self.message) }
    }
}

/// Adds the failed operation to an error; the text is built only in case of an error.
pub(crate) trait During<T> {
    /// Converts the kernel's error.
    fn during<D: Display>(self, operation: impl FnOnce() -> D) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during<D: Display>(self, operation: impl FnOnce() -> D) -> Result<T, Error> {
        self.map_err(|cause| Error::system(operation(), cause))
    }
}
