//! The error type of this crate.

use std::{error, fmt::Display, path::Path, sync::Arc};

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
    operation: Option<String>,
    object: Option<String>,
    #[source]
    source: Option<Arc<dyn error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), operation: None, object: None, source: None }
    }

    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the operation that failed: the outermost one that is known.
    pub fn operation(&self) -> Option<&str> {
        self.operation.as_deref()
    }

    /// Returns the object of the operation, unless it is part of its text.
    pub fn object(&self) -> Option<&str> {
        self.object.as_deref()
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
    pub(crate) fn during(self, operation: impl Display) -> Self {
        let operation = operation.to_string();
        let message = format!("{operation}: {}", self.message);
        Self { message, operation: Some(operation), object: None, ..self }
    }
}

/// Returns the conversion of an I/O error of `operation` on `path`, for `map_err`.
pub(crate) fn failed_to<'a, E>(operation: &'a str, path: &'a Path) -> impl FnOnce(E) -> Error + 'a
where
    E: error::Error + Send + Sync + 'static,
{
    move |cause| {
        let object = path.display().to_string();
        let error = Error::system(format!("{operation} {object}: {cause}"));
        let (operation, object) = (Some(operation.to_owned()), Some(object));
        Error { operation, object, source: Some(Arc::new(cause)), ..error }
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error as _, io};

    use super::*;

    #[test]
    fn an_error_is_data_and_a_message() {
        let error = failed_to("open", Path::new("/x"))(io::Error::from_raw_os_error(2));
        assert_eq!(error.to_string(), "open /x: No such file or directory (os error 2)");
        assert_eq!((error.kind(), error.operation(), error.object()), (ErrorKind::System, Some("open"), Some("/x")));
        assert!(error.source().is_some());
        let error = error.during("pull image a");
        assert_eq!(error.to_string(), "pull image a: open /x: No such file or directory (os error 2)");
        assert_eq!((error.operation(), error.object()), (Some("pull image a"), None));
        assert!(Error::invalid("x").source().is_none());
    }
}
