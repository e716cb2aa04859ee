//! Conversion of errors of other crates to failures of the contract.

use std::fmt::Display;

use monitor_api::{CommandError, Failure, FailureKind};

/// A system call or another operation of the host failed.
pub(crate) fn system(operation: impl Display, cause: impl Display) -> Failure {
    Failure::during(FailureKind::System, operation, cause)
}

/// The request is invalid.
pub(crate) fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Invalid, message)
}

/// The container does not exist.
pub(crate) fn no_container(operation: &str, id: &str) -> Failure {
    let cause = "the monitor has no container with this id";
    Failure::during(FailureKind::NotFound, format_args!("{operation} container {id}"), cause)
}

/// The state of the container does not allow the operation.
pub(crate) fn state(operation: &str, id: &str, why: &str) -> Failure {
    Failure::during(FailureKind::State, format_args!("{operation} container {id}"), why)
}

/// Converts an error of `container`.
pub(crate) fn of_container(operation: &str, error: &container::Error) -> Failure {
    let (kind, command) = match error.kind() {
        container::ErrorKind::Invalid => (FailureKind::Invalid, None),
        container::ErrorKind::NotFound => (FailureKind::Command, Some(CommandError::NotFound)),
        container::ErrorKind::NotExecutable => (FailureKind::Command, Some(CommandError::NotExecutable)),
        container::ErrorKind::WorkingDirectory => (FailureKind::Command, None),
        container::ErrorKind::NotRunning => (FailureKind::State, None),
        container::ErrorKind::System => (FailureKind::System, None),
    };
    Failure { command, ..Failure::during(kind, operation, error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_an_error_and_not_its_text_names_the_command() {
        let text = "exec \"x\": no such file or directory";
        let failure = |kind| {
            let failure = of_container("start container a", &container::Error::new(kind, text));
            assert_eq!(failure.message, format!("start container a: {text}"));
            (failure.kind, failure.command)
        };
        let missing = (FailureKind::Command, Some(CommandError::NotFound));
        assert_eq!(failure(container::ErrorKind::NotFound), missing);
        let refused = (FailureKind::Command, Some(CommandError::NotExecutable));
        assert_eq!(failure(container::ErrorKind::NotExecutable), refused);
        assert_eq!(failure(container::ErrorKind::WorkingDirectory), (FailureKind::Command, None));
        assert_eq!(failure(container::ErrorKind::Invalid), (FailureKind::Invalid, None));
    }
}
