use pod::{ErrorKind, ImageErrorKind};
use tonic::{Code, Status};

/// Why a request is not answered: a gRPC code and one sentence.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
}

impl Failure {
    /// The request is wrong: `config.metadata.name: must not be empty`.
    pub(crate) fn invalid(field: &str, why: impl std::fmt::Display) -> Self {
        Self { code: Code::InvalidArgument, message: format!("{field}: {why}") }
    }

    /// This RPC is not there (yet); says so, and what to use.
    pub(crate) fn unimplemented(rpc: &str, instead: &str) -> Self {
        Self {
            code: Code::Unimplemented,
            message: format!("{rpc} is not implemented by this version of pinion; {instead}"),
        }
    }

    /// Something that is not the caller's fault.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self { code: Code::Internal, message: message.into() }
    }

    /// The object is in a state that does not allow it.
    pub(crate) fn precondition(message: impl Into<String>) -> Self {
        Self { code: Code::FailedPrecondition, message: message.into() }
    }

    /// The object is not there.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self { code: Code::NotFound, message: message.into() }
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
        Self { code, message: error.message }
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
        Self { code, message: error.message }
    }
}

impl From<streaming::TooMany> for Failure {
    fn from(error: streaming::TooMany) -> Self {
        let code = match error {
            streaming::TooMany::Waiting => Code::ResourceExhausted,
            streaming::TooMany::Random(_) => Code::Internal,
        };
        Self { code, message: error.to_string() }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        Status::new(failure.code, failure.message)
    }
}
