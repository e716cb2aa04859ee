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
    let kind = match error.kind() {
        container::ErrorKind::Invalid => FailureKind::Invalid,
        container::ErrorKind::NotFound | container::ErrorKind::NotExecutable => FailureKind::Command,
        container::ErrorKind::NotRunning => FailureKind::State,
        container::ErrorKind::System => FailureKind::System,
    };
    Failure { command: command_error(error), ..Failure::during(kind, operation, error) }
}

/// Returns why a program cannot be executed; `None` for any other error, such as a working directory that cannot be
/// entered.
///
/// The child reports a kind and a text, `exec "<program>": <cause>`, but no errno. The cause is the text of ENOENT or
/// ENOTDIR, or that of a lookup in $PATH without result, if the program does not exist.
fn command_error(error: &container::Error) -> Option<CommandError> {
    if error.kind != container::ErrorKind::Executable {
        return None;
    }
    let rest = error.message.strip_prefix("exec \"")?;
    // The name is escaped: a quote that belongs to it follows an odd number of backslashes.
    let is_end = |at: usize| rest[..at].bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 0;
    let end = rest.match_indices("\": ").find(|(at, _)| is_end(*at))?.0;
    let cause = &rest[end + "\": ".len()..];
    let missing = ["executable file not found", "no such file or directory"].iter().any(|text| cause.starts_with(text));
    Some(if missing { CommandError::NotFound } else { CommandError::NotExecutable })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(kind: container::ErrorKind, message: &str) -> Failure {
        of_container("start container a", &container::Error { kind, message: message.to_owned() })
    }

    #[test]
    fn a_program_that_does_not_exist_is_distinguished_from_one_that_cannot_be_executed() {
        let command = |message: &str| {
            let failure = failure(container::ErrorKind::Executable, message);
            assert_eq!(failure.kind, FailureKind::Command);
            assert_eq!(failure.message, format!("start container a: {message}"));
            failure.command
        };
        let missing = Some(CommandError::NotFound);
        assert_eq!(command("exec \"nope\": executable file not found in $PATH (/bin)"), missing);
        assert_eq!(command("exec \"/x\": no such file or directory"), missing);
        let interpreter = "exec \"/x\": no such file or directory: its interpreter or dynamic loader is missing";
        assert_eq!(command(interpreter), missing);
        let refused = Some(CommandError::NotExecutable);
        assert_eq!(command("exec \"/etc\": permission denied: it is a directory"), refused);
        assert_eq!(command("exec \"/x\": exec format error: neither a program for this machine"), refused);
        // A name can contain anything.
        assert_eq!(command(r#"exec "a\": no such file or directory": permission denied"#), refused);
        assert_eq!(command(r#"exec "a\\": no such file or directory"#), missing);
        assert_eq!(command("enter the working directory \"/x\": No such file or directory"), None);
    }

    #[test]
    fn an_error_that_only_mentions_a_program_names_no_command() {
        let invalid = failure(container::ErrorKind::Invalid, "exec \"x\": no such file or directory");
        assert_eq!((invalid.kind, invalid.command), (FailureKind::Invalid, None));
    }
}
