//! The one error of this crate.

use std::{fmt::Display, path::Path};

/// What a caller can do about an [`Error`]; the CRI maps it to a gRPC code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// No such image, manifest, blob or snapshot.
    NotFound,
    /// The request, the configuration or the image itself is not valid.
    Invalid,
    /// The registry wants other credentials.
    Unauthorized,
    /// A registry can't be reached or does not answer; worth another try.
    Unavailable,
    /// Bytes are not what their digest says.
    Corrupt,
    /// This machine failed: disk, kernel, permissions.
    System,
}

/// What was done, to what, why it failed, and the way out.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// For programs.
    pub kind: ErrorKind,
    /// For people.
    pub message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    pub(crate) fn system(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::System, message)
    }

    /// Puts the operation and its object before the cause.
    pub(crate) fn during(mut self, what: impl Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

/// For `map_err`: an I/O failure of `operation` on `path`.
pub(crate) fn at<'a, E: Display>(operation: &'a str, path: &'a Path) -> impl FnOnce(E) -> Error + 'a {
    move |cause| Error::system(format!("{operation} {}: {cause}", path.display()))
}
