use std::fmt::Display;

use serde::{Deserialize, Serialize};

/// Class of a failure. The daemon maps it to a gRPC code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The monitor has no such object.
    NotFound,
    /// An object with this id already exists.
    AlreadyExists,
    /// The request or the spec is invalid; the caller must change it.
    Invalid,
    /// The state of the object does not allow the operation.
    State,
    /// The command of the container or exec is not in the image, or cannot be executed.
    Command,
    /// A system call failed.
    System,
    /// The peer implements another major version of the contract.
    Version,
}

/// Why the program of a container or exec cannot be executed: what shells distinguish by exit codes 127 and 126.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandError {
    /// The file, or the interpreter or dynamic loader that it names, does not exist.
    NotFound,
    /// The file exists, but the user may not execute it, or the kernel has no way to execute it.
    NotExecutable,
}

/// Error of a request: operation, object, cause and, where there is one, the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Class of the failure.
    pub kind: FailureKind,
    /// One sentence: `start container <id>: exec "nginxx": no such file in $PATH; check command and image`.
    pub message: String,
    /// For [`FailureKind::Command`]: why the program cannot be executed. `None` if another step of its start failed, and
    /// from a monitor that implements a contract before 1.6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandError>,
    /// The operation that the message begins with, if it names one, so that the daemon does not name it again. Contract
    /// 1.6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
}

impl Failure {
    /// Creates a failure of this class.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), command: None, operation: None }
    }

    /// Creates a failure of this operation, with the message `<operation>: <cause>`.
    pub fn during(kind: FailureKind, operation: impl Display, cause: impl Display) -> Self {
        let operation = operation.to_string();
        Self { operation: Some(operation.clone()), ..Self::new(kind, format!("{operation}: {cause}")) }
    }

    /// Returns the class.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Creates the failure of a program that cannot be executed.
    pub fn command(command: CommandError, message: impl Into<String>) -> Self {
        Self { command: Some(command), ..Self::new(FailureKind::Command, message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_of_an_older_contract_understand_a_failure_and_are_understood() {
        let old = r#"{"kind":"command","message":"exec \"x\": not found"}"#;
        let parsed: Failure = serde_json::from_str(old).expect("a failure of contract 1.5");
        assert_eq!(parsed, Failure::new(FailureKind::Command, "exec \"x\": not found"));
        assert_eq!(serde_json::to_string(&parsed).expect("JSON"), old);
        let new = serde_json::to_value(Failure::command(CommandError::NotFound, "m")).expect("JSON");
        assert_eq!(new, serde_json::json!({"kind": "command", "message": "m", "command": "not_found"}));
        let named = Failure::during(FailureKind::State, "start container a", "it has exited");
        assert_eq!(named.message, "start container a: it has exited");
        let again = serde_json::to_string(&named).and_then(|json| serde_json::from_str(&json));
        assert_eq!(again.map_err(|error| error.to_string()), Ok(named));
    }
}
