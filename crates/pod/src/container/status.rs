use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{ContainerConfig, UserChoice};

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
    pub id: String,
    /// Id of its sandbox.
    pub sandbox: String,
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

/// Output and exit code of a command.
#[derive(Clone, Debug)]
pub struct ExecOutput {
    /// Its standard output, at most 16 MiB.
    pub stdout: Vec<u8>,
    /// Its standard error, at most 16 MiB.
    pub stderr: Vec<u8>,
    /// Exit code, or 128 + signal.
    pub exit_code: i32,
}

/// A command to run in a container. For an attach request only the streams and the size matter.
#[derive(Clone, Debug)]
pub struct ExecRequest {
    /// Variables that are added to the container's environment or replace those of the same name.
    pub env: Vec<(String, String)>,
    /// Working directory; `None`: that of the container.
    pub working_dir: Option<String>,
    /// User to run as; `UserChoice::Image`: the container's own user.
    pub user: UserChoice,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Whether the command gets a terminal.
    pub tty: bool,
    /// Whether the client sends input.
    pub stdin: bool,
    /// Whether the client receives standard output.
    pub stdout: bool,
    /// Whether the client receives standard error (a terminal has only one output stream, standard output).
    pub stderr: bool,
    /// Size of the terminal.
    pub size: Option<oci::TerminalSize>,
}
