//! Errors of other crates as failures of the contract.

use std::fmt::Display;

use agent_api::{Failure, FailureKind, ProcessId};

/// Why a configuration is not applied.
pub(crate) enum Unapplied {
    /// A device is not there yet: one that was plugged needs a while.
    Absent(Failure),
    /// Anything else.
    Failed(Failure),
}

impl From<Failure> for Unapplied {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A system call failed.
pub(crate) fn system(operation: impl Display, cause: impl Display) -> Failure {
    Failure::new(FailureKind::System, format!("{operation}: {cause}"))
}

/// The request is invalid.
pub(crate) fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Invalid, message)
}

/// The state of a process does not allow the operation.
pub(crate) fn state(operation: &str, process: &ProcessId, cause: &str) -> Failure {
    Failure::new(FailureKind::State, format!("{operation} {}: {cause}", name(process)))
}

/// The agent does not know a process.
pub(crate) fn unknown(operation: &str, process: &ProcessId) -> Failure {
    Failure::new(FailureKind::NotFound, format!("{operation} {}: the guest does not have it", name(process)))
}

/// Converts an error of `container`.
pub(crate) fn of_container(operation: &str, process: &ProcessId, error: &container::Error) -> Failure {
    let kind = match error.kind() {
        container::ErrorKind::Invalid => FailureKind::Invalid,
        container::ErrorKind::NotFound => FailureKind::CommandNotFound,
        container::ErrorKind::NotExecutable => FailureKind::CommandNotExecutable,
        container::ErrorKind::NotRunning => FailureKind::State,
        container::ErrorKind::WorkingDirectory | container::ErrorKind::System => FailureKind::System,
    };
    Failure::new(kind, format!("{operation} {}: {error}", name(process)))
}

/// Returns how messages name a process.
pub(crate) fn name(process: &ProcessId) -> String {
    match &process.exec {
        None => format!("container {}", process.container),
        Some(exec) => format!("process {exec} in container {}", process.container),
    }
}
