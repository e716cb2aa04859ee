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

/// Error of a request: operation, object, cause and, where there is one, the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Class of the failure.
    pub kind: FailureKind,
    /// One sentence: `start container <id>: exec "nginxx": no such file in $PATH; check command and image`.
    pub message: String,
}

impl Failure {
    /// Creates a failure of this class.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Returns the class.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }
}
