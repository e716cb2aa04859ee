use std::fmt::Display;

/// Class of a failure: `cri` maps it to a gRPC code, the command line to an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// There is no such object.
    NotFound,
    /// The name or id is taken.
    AlreadyExists,
    /// The request is wrong: the caller must change it.
    InvalidArgument,
    /// The object is in a state that does not allow it.
    FailedPrecondition,
    /// It took longer than the caller allows.
    DeadlineExceeded,
    /// A limit of the machine or of this program was met.
    ResourceExhausted,
    /// The monitor, a registry or a plugin does not answer now: try again.
    Unavailable,
    /// This version cannot do it.
    Unimplemented,
    /// The kernel or the host refused, or a bug.
    Internal,
}

/// Why an operation failed: operation, its object, cause and (where there is one) the way out, in one sentence.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Class.
    pub kind: ErrorKind,
    /// The sentence.
    pub message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn not_found(what: &str, id: &str) -> Self {
        Self::new(ErrorKind::NotFound, format!("{what} {id:?} is not known"))
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

    /// The same failure, told as part of a larger operation; as it is, if the monitor named that operation already.
    #[must_use]
    pub(crate) fn during(self, operation: impl Display) -> Self {
        let operation = format!("{operation}: ");
        match self.message.starts_with(&operation) {
            true => self,
            false => Self { kind: self.kind, message: operation + &self.message },
        }
    }
}

/// For `map_err` on a system call or file operation: `open /etc/passwd: Permission denied`.
pub(crate) fn failed<E: Display>(operation: impl Display) -> impl FnOnce(E) -> Error {
    move |cause| Error::internal(format!("{operation}: {cause}"))
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
        Self::new(kind, failure.message)
    }
}
