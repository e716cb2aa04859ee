use agent_api::{Failure, FailureKind};

use crate::error::printable;

/// Class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The guest does not have the object.
    NotFound,
    /// The guest has an object with this id.
    Exists,
    /// The state of the object does not allow the operation.
    State,
    /// The request is invalid.
    Invalid,
    /// The command does not exist in the root file system.
    CommandNotFound,
    /// The command cannot be executed.
    CommandNotExecutable,
    /// Nothing in the guest accepts the connection.
    Unreachable,
    /// A device of the pod is not in the guest.
    Absent,
    /// The agent did not answer in time.
    Timeout,
    /// The connection is closed: the virtual machine or the agent has ended.
    Gone,
    /// The agent does not keep to the contract.
    Protocol,
    /// The agent reported another failure.
    Refused,
}

/// Error of a request to a guest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation}: {cause}")]
pub struct Error {
    /// Its class.
    pub kind: ErrorKind,
    /// What was to be done, with its object.
    pub operation: String,
    /// Why it failed.
    pub cause: String,
}

impl Error {
    pub(super) fn new(kind: ErrorKind, operation: impl Into<String>, cause: impl Into<String>) -> Self {
        Self { kind, operation: operation.into(), cause: cause.into() }
    }

    /// Replaces the operation.
    pub(super) fn during(self, operation: impl Into<String>) -> Self {
        Self { operation: operation.into(), ..self }
    }

    pub(super) fn refused(operation: impl Into<String>, failure: Failure) -> Self {
        let kind = match failure.kind {
            FailureKind::NotFound => ErrorKind::NotFound,
            FailureKind::Exists => ErrorKind::Exists,
            FailureKind::State => ErrorKind::State,
            FailureKind::Invalid => ErrorKind::Invalid,
            FailureKind::CommandNotFound => ErrorKind::CommandNotFound,
            FailureKind::CommandNotExecutable => ErrorKind::CommandNotExecutable,
            FailureKind::Unreachable => ErrorKind::Unreachable,
            FailureKind::Absent => ErrorKind::Absent,
            FailureKind::System => ErrorKind::Refused,
        };
        Self::new(kind, operation, printable(&failure.message))
    }
}
