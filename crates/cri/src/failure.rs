use cri_proto::CommandError;
use pod::{ErrorKind, ImageErrorKind};
use tonic::{Code, Status};

/// The error of a request: a gRPC code and a message of one sentence.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    /// Why the program of a container or exec cannot be executed, if that is the cause.
    command: Option<CommandError>,
}

impl Failure {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), command: None }
    }

    /// Creates an error for an invalid field: `config.metadata.name: must not be empty`.
    pub(crate) fn invalid(field: &str, reason: impl std::fmt::Display) -> Self {
        Self::new(Code::InvalidArgument, format!("{field}: {reason}"))
    }

    /// Creates an error that the client did not cause.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// Creates an error for an object whose state does not allow the operation.
    pub(crate) fn precondition(message: impl Into<String>) -> Self {
        Self::new(Code::FailedPrecondition, message)
    }

    /// Creates an error for a missing object.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.code == Code::NotFound
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

impl From<pod::Error> for Failure {
    fn from(error: pod::Error) -> Self {
        let code = match error.kind {
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::AlreadyExists => Code::AlreadyExists,
            ErrorKind::InvalidArgument => Code::InvalidArgument,
            ErrorKind::FailedPrecondition => Code::FailedPrecondition,
            ErrorKind::DeadlineExceeded => Code::DeadlineExceeded,
            ErrorKind::ResourceExhausted => Code::ResourceExhausted,
            ErrorKind::Unavailable => Code::Unavailable,
            ErrorKind::Unimplemented => Code::Unimplemented,
            ErrorKind::Internal => Code::Internal,
        };
        let command = error.command.map(|command| match command {
            pod::CommandError::NotFound => CommandError::NotFound,
            pod::CommandError::NotExecutable => CommandError::NotExecutable,
        });
        Self { command, ..Self::new(code, error.message) }
    }
}

impl From<pod::ImageError> for Failure {
    fn from(error: pod::ImageError) -> Self {
        let code = match error.kind {
            ImageErrorKind::NotFound => Code::NotFound,
            ImageErrorKind::Invalid => Code::InvalidArgument,
            ImageErrorKind::Unauthorized => Code::Unauthenticated,
            ImageErrorKind::Unavailable => Code::Unavailable,
            ImageErrorKind::Corrupt => Code::DataLoss,
            ImageErrorKind::System => Code::Internal,
        };
        Self::new(code, error.message)
    }
}

impl From<streaming::TokenError> for Failure {
    fn from(error: streaming::TokenError) -> Self {
        let code = match error {
            streaming::TokenError::TooMany => Code::ResourceExhausted,
            streaming::TokenError::Random(_) => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        match failure.command {
            Some(command) => command.status(failure.code, failure.message),
            None => Status::new(failure.code, failure.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_of_a_command_has_details() {
        let plain = Status::from(Failure::precondition("the container is not running"));
        assert_eq!((plain.code(), plain.details()), (Code::FailedPrecondition, &b""[..]));
        let command = Some(CommandError::NotExecutable);
        let status = Status::from(Failure { command, ..Failure::new(Code::InvalidArgument, "exec \"/etc\": no") });
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "exec \"/etc\": no"));
        assert_eq!(CommandError::of(&status), command);
    }
}
