//! Requests to execute a command in a container, and their results.

use crate::UserChoice;

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

/// Exit of an exec'd process or an attached container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionExit {
    /// Exit code, or 128 + signal; 255 if it cannot be determined.
    pub code: i32,
    /// Whether the OOM killer killed it, or a process of the attached container.
    pub oom_killed: bool,
}

/// Exit code that is reported if it cannot be determined.
pub(super) const UNKNOWN: i32 = 255;
