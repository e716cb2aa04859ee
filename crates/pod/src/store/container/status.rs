use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use super::config::ContainerConfig;
use crate::{ContainerId, SandboxId};

/// State of a container, as the CRI reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    /// It is set up; its program was not started yet.
    Created,
    /// Its program is running.
    Running,
    /// It exited.
    Exited,
    /// It is being created, or its state cannot be determined.
    Unknown,
}

/// Status of a container at one moment. Times are nanoseconds since the epoch, 0 for not yet.
#[derive(Clone, Debug)]
pub struct ContainerStatus {
    /// 64 hex digits.
    pub id: ContainerId,
    /// Id of its sandbox.
    pub sandbox: SandboxId,
    /// The configuration of the request.
    pub config: Arc<ContainerConfig>,
    /// `sha256:…`
    pub image_id: String,
    /// Its state.
    pub state: ContainerState,
    /// Time of its creation.
    pub created_at: u64,
    /// Time at which its program started.
    pub started_at: u64,
    /// Time at which it exited.
    pub finished_at: u64,
    /// Exit code, or 128 + signal; `None` while it is running and if it cannot be known.
    pub exit_code: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, …
    pub reason: String,
    /// Details of the reason, for people.
    pub message: String,
    /// Absolute path of its log.
    pub log_path: Option<PathBuf>,
    /// PID of its init process, while there is one.
    pub pid: Option<u32>,
    /// Its current limits, after updates.
    pub resources: oci::Resources,
    /// Its current OOM score adjustment, after updates.
    pub oom_score_adj: i32,
    /// The signal that `StopContainer` sends first.
    pub stop_signal: i32,
    /// User of its init process.
    pub user: oci::User,
    /// Stage of the operation that is in progress or failed, for `inspect`.
    pub stage: String,
    /// Whether its creation is in progress, so that the caller that creates it does not have its id yet.
    pub creating: bool,
}
