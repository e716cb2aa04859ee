use std::{fmt::Display, io};

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The spec or the inputs: nothing was changed.
    Invalid,
    /// The container's command: not found, not executable.
    Command,
    /// The container that was to be joined has ended, or is ending.
    Ended,
    /// The kernel refused.
    System,
}

/// The operation, its object and the cause, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Whose fault it is.
    pub kind: ErrorKind,
    /// What to show.
    pub message: String,
}

impl Error {
    pub(crate) fn invalid(message: impl Display) -> Self {
        Self { kind: ErrorKind::Invalid, message: message.to_string() }
    }

    pub(crate) fn command(message: impl Display) -> Self {
        Self { kind: ErrorKind::Command, message: message.to_string() }
    }

    pub(crate) fn system(operation: impl Display, cause: impl Into<io::Error>) -> Self {
        Self { kind: ErrorKind::System, message: format!("{operation}: {}", cause_text(&cause.into())) }
    }

    /// The process whose namespaces were to be joined has none any more.
    pub(crate) fn ended(operation: &str) -> Self {
        Self { kind: ErrorKind::Ended, message: format!("{operation}: the container is not running") }
    }

    /// The same error with what was being done in front.
    pub(crate) fn within(self, operation: impl Display) -> Self {
        Self { kind: self.kind, message: format!("{operation}: {}", self.message) }
    }
}

/// The cause in words, without the number that the standard library adds.
pub(crate) fn cause_text(cause: &io::Error) -> String {
    let text = cause.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// Says what failed, and only then makes the words.
pub(crate) trait During<T> {
    /// Turns the kernel's error into ours.
    fn during<D: Display>(self, operation: impl FnOnce() -> D) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during<D: Display>(self, operation: impl FnOnce() -> D) -> Result<T, Error> {
        self.map_err(|cause| Error::system(operation(), cause))
    }
}
