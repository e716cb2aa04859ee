//! The error type of this crate.

use std::{fmt::Display, path::Path};

/// Kinds of an [`Error`], by what a caller can do about it. The CRI maps them to gRPC codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// No such image, manifest, blob or snapshot.
    NotFound,
    /// The request, the configuration or the image itself is not valid.
    Invalid,
    /// The registry requires other credentials.
    Unauthorized,
    /// A registry cannot be reached or does not respond; a retry may succeed.
    Unavailable,
    /// Bytes do not match their digest.
    Corrupt,
    /// A failure of this machine: disk, kernel, permissions.
    System,
}

/// An error. Its message has the operation, the object, the cause, and what to do.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The kind, for programs.
    pub kind: ErrorKind,
    /// The message, for people.
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

    /// Prefixes the message with the operation and its object.
    pub(crate) fn during(mut self, operation: impl Display) -> Self {
        self.message = format!("{operation}: {}", self.message);
        self
    }
}

/// Returns the conversion of an I/O error of `operation` on `path`, for `map_err`.
pub(crate) fn failed_to<'a, E: Display>(operation: &'a str, path: &'a Path) -> impl FnOnce(E) -> Error + 'a {
    move |cause| Error::system(format!("{operation} {}: {cause}", path.display()))
}
