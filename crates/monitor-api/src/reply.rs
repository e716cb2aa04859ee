use serde::{Deserialize, Serialize};

use crate::{Created, ExecStarted, Holding, PodInitStarted, Pong, Welcome};

/// A reply of the monitor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The operation succeeded.
    Done,
    /// Reply to `Hello` and `Upgrade`.
    Welcome(Welcome),
    /// Reply to `Inventory`, one per object.
    Holding(Box<Holding>),
    /// Reply to `Create`.
    Created(Created),
    /// Reply to `Exec`.
    ExecStarted(ExecStarted),
    /// Reply to `PodInit`.
    PodInitStarted(PodInitStarted),
    /// Reply to `MakeNamespaces`.
    NamespacesMade,
    /// Reply to `Ping`.
    Pong(Pong),
    /// Reply to `RuntimeCommand`: its standard output. Contract 1.8.
    CommandOutput {
        /// At most [`crate::RuntimeCommand::OUTPUT_MAX`] bytes.
        output: Vec<u8>,
    },
}

impl Reply {
    /// Returns its name on the wire.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Welcome(_) => "welcome",
            Self::Holding(_) => "holding",
            Self::Created(_) => "created",
            Self::ExecStarted(_) => "exec_started",
            Self::PodInitStarted(_) => "pod_init_started",
            Self::NamespacesMade => "namespaces_made",
            Self::Pong(_) => "pong",
            Self::CommandOutput { .. } => "command_output",
        }
    }
}
