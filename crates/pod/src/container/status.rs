use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{ContainerConfig, UserChoice};

/// Where a container stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    /// Set up, its program does not run yet.
    Created,
    /// Its program runs.
    Running,
    /// It ended.
    Exited,
    /// It is being made, or cannot be told.
    Unknown,
}

/// A container as it was at one moment. Times are nanoseconds since the epoch, 0 for not yet.
#[derive(Clone, Debug)]
pub struct ContainerStatus {
    /// 64 hex digits.
    pub id: String,
    /// Its sandbox's id.
    pub sandbox: String,
    /// What was asked for.
    pub config: Arc<ContainerConfig>,
    /// `sha256:…`
    pub image_id: String,
    /// Where it stands.
    pub state: ContainerState,
    /// When it was made.
    pub created_at: u64,
    /// When its program started.
    pub started_at: u64,
    /// When it ended.
    pub finished_at: u64,
    /// Exit code, 128 + signal; `None` while it runs and where it cannot be known.
    pub exit_code: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`, …
    pub reason: String,
    /// More about it.
    pub message: String,
    /// Its log, absolute.
    pub log_path: Option<PathBuf>,
    /// Its first process, while there is one.
    pub pid: Option<u32>,
    /// Its limits as they are, after updates.
    pub resources: oci::Resources,
    /// How ready the kernel is to end it, after updates.
    pub oom_score_adj: i32,
    /// What asks it to end.
    pub stop_signal: i32,
    /// Who it is.
    pub user: oci::User,
    /// Where a running or failed operation stands, for `inspect`.
    pub stage: String,
    /// It is only just being made, and whoever makes it does not have its id yet.
    pub making: bool,
}

/// What a command said.
#[derive(Clone, Debug)]
pub struct ExecOutput {
    /// At most 16 MiB.
    pub stdout: Vec<u8>,
    /// At most 16 MiB.
    pub stderr: Vec<u8>,
    /// Exit code, 128 + signal.
    pub exit_code: i32,
}

/// A command to run in a container; for an attached client only the streams and the size count.
#[derive(Clone, Debug)]
pub struct ExecRequest {
    /// Added to (or in place of) the container's.
    pub env: Vec<(String, String)>,
    /// `None`: the container's.
    pub working_dir: Option<String>,
    /// `UserChoice::Image`: the container's own user.
    pub user: UserChoice,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Whether it gets a terminal.
    pub tty: bool,
    /// Whether input is given.
    pub stdin: bool,
    /// Whether output is wanted.
    pub stdout: bool,
    /// Whether errors are wanted (a terminal has one stream: its output).
    pub stderr: bool,
    /// Columns and rows of the terminal.
    pub size: Option<(u16, u16)>,
}
