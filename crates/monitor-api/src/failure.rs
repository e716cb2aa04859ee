use serde::{Deserialize, Serialize};

/// What class of failure it is; the daemon maps it to a gRPC code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The object is not known to the monitor.
    NotFound,
    /// There is one of that id already.
    AlreadyExists,
    /// The request or the spec is wrong: the caller must change it.
    Invalid,
    /// The object is in a state that does not allow the operation.
    State,
    /// The command to run is not in the image or cannot be executed.
    Command,
    /// The kernel or the host refused.
    System,
    /// The other side speaks another major version.
    Version,
}

/// Why a request failed: operation, object, cause and (where there is one) the way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Class.
    pub kind: FailureKind,
    /// One sentence: `start container <id>: exec "nginxx": no such file in $PATH; check command and image`.
    pub message: String,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}
