use std::{fmt, io, path::Path};

/// Cause of a failure, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A kernel, module or image does not exist.
    NotFound,
    /// A file does not have the format or the size it should have.
    Invalid,
    /// Another build of the same image is running.
    Busy,
    /// The operating system failed a request.
    Io,
}

/// Failure to build or open an image: `<operation> <object>: <cause>; <remedy>`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// Cause, for programs.
    pub kind: ErrorKind,
    /// The operation, for people.
    pub operation: &'static str,
    /// The file, directory or module that the operation works on.
    pub object: String,
    /// Cause, for people.
    pub cause: String,
    /// How an administrator can fix it, if that is known.
    pub remedy: Option<String>,
}

impl Error {
    pub(super) fn new(kind: ErrorKind, operation: &'static str, object: &Path, cause: impl ToString) -> Self {
        let object = object.display().to_string();
        Self { kind, operation, object, cause: cause.to_string(), remedy: None }
    }

    pub(super) fn invalid(operation: &'static str, object: &Path, cause: impl ToString) -> Self {
        Self::new(ErrorKind::Invalid, operation, object, cause)
    }

    /// Returns a function for `map_err`.
    pub(super) fn io<E: Into<io::Error>>(operation: &'static str, object: &Path) -> impl FnOnce(E) -> Self {
        move |error| {
            let error = error.into();
            let kind = if error.kind() == io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Io };
            Self::new(kind, operation, object, error)
        }
    }

    pub(super) fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, object, cause, .. } = self;
        write!(formatter, "{operation} {object}: {cause}")?;
        self.remedy.iter().try_for_each(|remedy| write!(formatter, "; {remedy}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_operation_object_cause_and_remedy() {
        let error = Error::io::<io::Error>("open image", Path::new("/i"))(io::ErrorKind::NotFound.into());
        assert_eq!((error.kind, error.to_string().as_str()), (ErrorKind::NotFound, "open image /i: entity not found"));
        assert_eq!(error.with_remedy("build it").to_string(), "open image /i: entity not found; build it");
    }
}
