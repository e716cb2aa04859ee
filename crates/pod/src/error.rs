use std::fmt::Display;

use monitor_api::CommandError;

/// Class of an error: `cri` maps it to a gRPC code, the command line to an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The object does not exist.
    NotFound,
    /// The name or id is already in use.
    AlreadyExists,
    /// The request is invalid: the caller must change it.
    InvalidArgument,
    /// The state of the object does not allow the operation.
    FailedPrecondition,
    /// The operation did not complete in time.
    DeadlineExceeded,
    /// A limit of the machine or of this program was reached.
    ResourceExhausted,
    /// The monitor, a registry or a plugin does not respond at present: the request can be retried.
    Unavailable,
    /// This version does not support the request.
    Unimplemented,
    /// The kernel or the host failed, or a bug.
    Internal,
}

/// Error of an operation. The message names the operation, its object, the cause and, if there is one, the remedy.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Class of the error.
    pub kind: ErrorKind,
    /// The message.
    pub message: String,
    /// Why the program of a container or exec cannot be executed, if that is the cause.
    pub command: Option<CommandError>,
    /// The operation that the message begins with, if it is known to name one.
    pub(crate) operation: Option<String>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), command: None, operation: None }
    }

    pub(crate) fn not_found(kind: &str, id: &str) -> Self {
        Self::new(ErrorKind::NotFound, format!("{kind} {id:?} is not known"))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    pub(crate) fn state(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::FailedPrecondition, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Prefixes the message with the operation that failed, unless the monitor has named that operation already.
    #[must_use]
    pub(crate) fn during(self, operation: impl Display) -> Self {
        let operation = operation.to_string();
        if self.operation.as_ref() == Some(&operation) {
            return self;
        }
        Self { message: format!("{operation}: {}", self.message), operation: Some(operation), ..self }
    }
}

/// Returns a function for `map_err` that prefixes an error with the operation: `open /etc/passwd: Permission denied`.
pub(crate) fn failed<E: Display>(operation: impl Display) -> impl FnOnce(E) -> Error {
    move |cause| Error::internal(format!("{operation}: {cause}"))
}

impl From<network::Error> for Error {
    fn from(error: network::Error) -> Self {
        let kind = match error.kind() {
            network::ErrorKind::Invalid => ErrorKind::InvalidArgument,
            network::ErrorKind::NotFound => ErrorKind::NotFound,
            network::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            network::ErrorKind::InUse | network::ErrorKind::Cancelled => ErrorKind::FailedPrecondition,
            network::ErrorKind::Exhausted => ErrorKind::ResourceExhausted,
            network::ErrorKind::Plugin | network::ErrorKind::System => ErrorKind::Internal,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<image::Error> for Error {
    fn from(error: image::Error) -> Self {
        let kind = match error.kind {
            image::ErrorKind::NotFound => ErrorKind::NotFound,
            image::ErrorKind::Invalid => ErrorKind::InvalidArgument,
            image::ErrorKind::Unauthorized => ErrorKind::FailedPrecondition,
            image::ErrorKind::Unavailable => ErrorKind::Unavailable,
            image::ErrorKind::Corrupt | image::ErrorKind::System => ErrorKind::Internal,
        };
        Self::new(kind, error.message)
    }
}

impl From<monitor_api::Failure> for Error {
    fn from(failure: monitor_api::Failure) -> Self {
        use monitor_api::FailureKind;
        let kind = match failure.kind {
            FailureKind::NotFound => ErrorKind::NotFound,
            FailureKind::AlreadyExists => ErrorKind::AlreadyExists,
            FailureKind::Invalid | FailureKind::Command => ErrorKind::InvalidArgument,
            FailureKind::State => ErrorKind::FailedPrecondition,
            FailureKind::System => ErrorKind::Internal,
            FailureKind::Version => ErrorKind::Unavailable,
        };
        Self { command: failure.command, operation: failure.operation, ..Self::new(kind, failure.message) }
    }
}

#[cfg(test)]
mod tests {
    use monitor_api::{Failure, FailureKind};

    use super::*;

    #[test]
    fn an_operation_that_the_monitor_named_is_not_named_again() {
        let failure = Failure::during(FailureKind::State, "exec in container a", "it has exited");
        let error = Error::from(failure).during(format_args!("exec in container {}", "a"));
        assert_eq!(error.message, "exec in container a: it has exited");
        assert_eq!(error.during("run x").message, "run x: exec in container a: it has exited");
        let lost = Error::unavailable("the connection was lost").during("exec in container a");
        assert_eq!(lost.message, "exec in container a: the connection was lost");
        assert_eq!(lost.clone().during("exec in container a").message, lost.message);
    }

    #[test]
    fn an_error_keeps_the_reason_of_its_command() {
        let failure = Failure::command(CommandError::NotExecutable, "exec \"/etc\": permission denied");
        let error = Error::from(failure).during("start container a");
        assert_eq!((error.kind, error.command), (ErrorKind::InvalidArgument, Some(CommandError::NotExecutable)));
    }
}
