//! Conversion of errors of other crates to failures of the contract.

use std::fmt::Display;

use monitor_api::{Failure, FailureKind};

/// A system call or another operation of the host failed.
pub(crate) fn system(operation: impl Display, cause: impl Display) -> Failure {
    Failure::new(FailureKind::System, format!("{operation}: {cause}"))
}

/// The request is invalid.
pub(crate) fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Invalid, message)
}

/// The container does not exist.
pub(crate) fn no_container(operation: &str, id: &str) -> Failure {
    Failure::new(
        FailureKind::NotFound,
        format!("{operation} container {id}: the monitor has no container with this id"),
    )
}

/// The state of the container does not allow the operation.
pub(crate) fn state(operation: &str, id: &str, why: &str) -> Failure {
    Failure::new(FailureKind::State, format!("{operation} container {id}: {why}"))
}

/// Converts an error of `container`.
pub(crate) fn of_container(operation: &str, error: &container::Error) -> Failure {
    let kind = match error.kind() {
        container::ErrorKind::Invalid => FailureKind::Invalid,
        container::ErrorKind::NotFound | container::ErrorKind::NotExecutable => FailureKind::Command,
        container::ErrorKind::NotRunning => FailureKind::State,
        container::ErrorKind::System => FailureKind::System,
    };
    Failure::new(kind, format!("{operation}: {error}"))
}
