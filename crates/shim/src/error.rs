use ttrpc::{CallError, code};

/// What went wrong with a shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// It does not know the container or process.
    NotFound,
    /// The container or process is not in a state in which this is possible.
    State,
    /// It does not implement this.
    Unimplemented,
    /// It did not answer in time.
    Timeout,
    /// It is not running, or closed the connection.
    Gone,
    /// It does not keep to the protocol.
    Protocol,
    /// It refused the request for another reason.
    Refused,
}

/// Failure of a request to a shim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation}: {cause}")]
pub struct Error {
    /// What went wrong.
    pub kind: ErrorKind,
    /// The operation and its object, for people.
    pub operation: String,
    /// The cause, for people: the message of the shim, if it sent one.
    pub cause: String,
}

/// Maximum number of bytes of a message of a shim that are reported.
const MESSAGE_MAX: usize = 2048;

impl Error {
    pub(crate) fn new(kind: ErrorKind, operation: impl Into<String>, cause: impl ToString) -> Self {
        let mut cause = cause.to_string();
        cause.retain(|character| !character.is_control());
        cause.truncate(cause.floor_char_boundary(MESSAGE_MAX));
        Self { kind, operation: operation.into(), cause }
    }

    pub(crate) fn call(operation: String, error: &CallError) -> Self {
        let kind = match error {
            CallError::Timeout(_) => ErrorKind::Timeout,
            CallError::Closed => ErrorKind::Gone,
            CallError::Garbage(_) | CallError::TooLong(_) => ErrorKind::Protocol,
            CallError::Refused { code: code::NOT_FOUND, .. } => ErrorKind::NotFound,
            CallError::Refused { code: code::FAILED_PRECONDITION, .. } => ErrorKind::State,
            CallError::Refused { code: code::UNIMPLEMENTED, .. } => ErrorKind::Unimplemented,
            CallError::Refused { .. } => ErrorKind::Refused,
        };
        let cause = match error {
            CallError::Timeout(time) => format!("the shim has not answered for {} s", time.as_secs_f32()),
            CallError::Closed => "the shim died, or closed the connection".to_owned(),
            CallError::Refused { message, .. } if message.is_empty() => "the shim gave no reason".to_owned(),
            other => other.to_string(),
        };
        Self::new(kind, operation, cause)
    }
}
