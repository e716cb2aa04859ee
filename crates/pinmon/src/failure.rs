//! Errors of the crates below, in the words of the contract.

use std::fmt::Display;

use monitor_api::{Failure, FailureKind};

/// The kernel refused.
pub(crate) fn system(operation: impl Display, cause: impl Display) -> Failure {
    Failure::new(FailureKind::System, format!("{operation}: {cause}"))
}

/// The request is wrong.
pub(crate) fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Invalid, message)
}

/// There is no such container.
pub(crate) fn no_container(operation: &str, id: &str) -> Failure {
    Failure::new(FailureKind::NotFound, format!("{operation} container {id}: the monitor has none of that id"))
}

/// It is in a state that does not allow it.
pub(crate) fn state(operation: &str, id: &str, why: &str) -> Failure {
    Failure::new(FailureKind::State, format!("{operation} container {id}: {why}"))
}

/// Of `container`.
pub(crate) fn of_container(operation: &str, error: &container::Error) -> Failure {
    let kind = match error.kind {
        container::ErrorKind::Invalid => FailureKind::Invalid,
        container::ErrorKind::Command => FailureKind::Command,
        container::ErrorKind::Ended => FailureKind::State,
        container::ErrorKind::System => FailureKind::System,
    };
    Failure::new(kind, format!("{operation}: {error}"))
}
