use std::{net::IpAddr, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{SandboxConfig, SandboxId};

/// State of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxState {
    /// Containers can be created in it.
    Ready,
    /// Stopped, or not created yet.
    NotReady,
}

/// Status of a sandbox at one moment.
#[derive(Clone, Debug)]
pub struct SandboxStatus {
    /// Id, 64 hex digits.
    pub id: SandboxId,
    /// The configuration of the request.
    pub config: Arc<SandboxConfig>,
    /// Whether containers can be created in it.
    pub state: SandboxState,
    /// Time of its creation, in nanoseconds since the epoch.
    pub created_at: u64,
    /// Its addresses, the primary one first; empty on the node's network.
    pub ips: Vec<IpAddr>,
    /// Visible path of its network namespace; `None` on the node's network.
    pub netns: Option<PathBuf>,
    /// Stage of an operation that is running or failed, for the verbose status.
    pub stage: String,
    /// Whether its creation is in progress: the caller does not know its id yet.
    pub creating: bool,
}
