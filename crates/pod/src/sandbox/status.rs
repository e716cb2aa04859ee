use std::{net::IpAddr, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use super::SandboxConfig;

/// Whether containers can be made in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxState {
    /// They can.
    Ready,
    /// Stopped, or not made yet.
    NotReady,
}

/// A sandbox as it was at one moment.
#[derive(Clone, Debug)]
pub struct SandboxStatus {
    /// 64 hex digits.
    pub id: String,
    /// What was asked for.
    pub config: Arc<SandboxConfig>,
    /// Whether containers can be made in it.
    pub state: SandboxState,
    /// Nanoseconds since the epoch.
    pub created_at: u64,
    /// Its addresses, the first the primary one; none on the node's network.
    pub ips: Vec<IpAddr>,
    /// Its network namespace's visible path; none on the node's network.
    pub netns: Option<PathBuf>,
    /// Where a running or failed operation stands, for `inspect`.
    pub stage: String,
    /// It is only just being made, and whoever makes it does not have its id yet.
    pub making: bool,
}
