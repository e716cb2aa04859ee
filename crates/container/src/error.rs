use std::{fmt::Display, io, sync::Arc};

use rustix::io::Errno;
use syscall::error_text::error_text;

/// Category of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The spec or the inputs are invalid; nothing was changed.
    Invalid,
    /// The program of the container or the exec, or its interpreter, does not exist: exit code 127 of shells.
    NotFound,
    /// The program of the container or the exec exists, but cannot be executed: exit code 126 of shells.
    NotExecutable,
    /// The working directory of the container or the exec cannot be entered.
    WorkingDirectory,
    /// The container to join has ended, or is ending.
    NotRunning,
    /// A system call failed.
    System,
}

/// An error: the operation, its object and the cause, in one line.
///
/// An error that the container's process reports to its parent has a kind and a message only.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    operation: Option<String>,
    object: Option<String>,
    message: String,
    #[source]
    source: Option<Arc<io::Error>>,
}

impl Error {
    /// Returns an error of this kind, for callers that report a failure of their part of the work.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, operation: None, object: None, message: message.into(), source: None }
    }

    /// Returns the category.
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

    /// Returns the message to show.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn invalid(message: impl Display) -> Self {
        Self::new(ErrorKind::Invalid, message.to_string())
    }

    /// The program cannot be executed; `errno` determines the kind.
    pub(crate) fn exec(program: &str, errno: Errno, reason: impl Display) -> Self {
        let kind = match errno {
            Errno::NOENT | Errno::NOTDIR => ErrorKind::NotFound,
            _ => ErrorKind::NotExecutable,
        };
        Self {
            kind,
            operation: Some("exec".to_owned()),
            object: Some(program.to_owned()),
            message: format!("exec {program:?}: {reason}"),
            source: Some(Arc::new(errno.into())),
        }
    }

    pub(crate) fn system(operation: impl Display, cause: impl Into<io::Error>) -> Self {
        let (operation, cause) = (operation.to_string(), cause.into());
        let message = format!("{operation}: {}", error_text(&cause));
        Self {
            kind: ErrorKind::System,
            operation: Some(operation),
            object: None,
            message,
            source: Some(Arc::new(cause)),
        }
    }

    /// The process whose namespaces were to be joined has exited.
    pub(crate) fn not_running(operation: &str) -> Self {
        let message = format!("{operation}: the container is not running");
        Self { operation: Some(operation.to_owned()), ..Self::new(ErrorKind::NotRunning, message) }
    }

    /// Prefixes the message with the surrounding operation.
    pub(crate) fn within(self, operation: impl Display) -> Self {
        let operation = operation.to_string();
        let message = format!("{operation}: {}", self.message);
        Self { operation: Some(operation), object: None, message, ..self }
    }

    /// Changes the kind, where a caller knows more about the cause.
    pub(crate) fn with_kind(self, kind: ErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// Appends the error of the rollback.
    pub(crate) fn and_then(self, rollback: impl Display) -> Self {
        let message = format!("{}; and then: {rollback}", self.message);
        Self { message, ..self }
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

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn the_errno_of_execve_determines_the_kind() {
        let kind = |errno| Error::exec("/bin/x", errno, "reason").kind();
        for errno in [Errno::NOENT, Errno::NOTDIR] {
            assert_eq!(kind(errno), ErrorKind::NotFound, "{errno}");
        }
        for errno in [Errno::ACCESS, Errno::NOEXEC, Errno::ISDIR, Errno::PERM, Errno::LOOP, Errno::TOOBIG, Errno::NOMEM]
        {
            assert_eq!(kind(errno), ErrorKind::NotExecutable, "{errno}");
        }
    }

    #[test]
    fn an_error_is_data_and_a_message() {
        let error = Error::system("mount /x", Errno::BUSY).within("set up the root");
        assert_eq!(error.to_string(), "set up the root: mount /x: Device or resource busy");
        assert_eq!((error.kind(), error.operation()), (ErrorKind::System, Some("set up the root")));
        assert!(error.source().is_some_and(|source| source.to_string().contains("busy")));
        let error = Error::exec("/bin/x", Errno::NOENT, "no such file or directory");
        assert_eq!(error.to_string(), "exec \"/bin/x\": no such file or directory");
        assert_eq!((error.operation(), error.object()), (Some("exec"), Some("/bin/x")));
        assert!(Error::invalid("linux: wrong").source().is_none());
    }
}
