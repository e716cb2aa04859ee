//! A process of the pod: the first one of a container, or one that was executed in it.

use agent_api::{Exit, Failure, ProcessId, ProcessState, Status};
use cgroup::Group;
use container::ContainerSetup;
use rustix::{fd::OwnedFd, process::WaitStatus};

use crate::{clock, connection::Caller};

/// Stage of a process.
///
/// ```text
/// SettingUp ──ready──▶ Created ──Start──▶ Starting ──execve──▶ Running ──reaped──▶ Exited
///     │ (an exec goes to Starting by itself)   │
///     └── a step failed ───────────────────────┴──▶ Failed ──reaped──▶ removed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is being set up.
    SettingUp,
    /// It waits for its start.
    Created,
    /// It may execute its program.
    Starting,
    /// It executed its program.
    Running,
    /// A step failed. It was killed.
    Failed,
    /// It was reaped.
    Exited(Exit),
}

/// What an exec needs of its container.
#[derive(Default)]
pub(crate) struct Template {
    /// The compiled seccomp profile.
    pub(crate) filter: Option<seccomp::Program>,
    /// Whether the container has a user namespace.
    pub(crate) user_namespace: bool,
    pub(crate) personality: Option<oci::Personality>,
    pub(crate) memory_policy: Option<oci::MemoryPolicy>,
}

/// A process of the pod.
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) setup: ContainerSetup,
    pub(crate) stage: Stage,
    /// The terminal, if it has one.
    pub(crate) terminal: Option<OwnedFd>,
    /// Ports of its streams, and its ends of them, until its pumps begin.
    pub(crate) streams: PendingStreams,
    /// The call that is answered when the stage changes.
    pub(crate) pending: Option<Caller>,
    /// Calls that wait for the exit.
    pub(crate) waiting: Vec<Caller>,
    /// The call that is answered when it is removed.
    pub(crate) deleting: Option<Caller>,
    /// For a container.
    pub(crate) template: Template,
    /// For an exec: what it ends with.
    pub(crate) lifeline: Option<Lifeline>,
    /// Whether it is forgotten when it is reaped: its client is gone.
    pub(crate) abandoned: bool,
}

/// What an exec ends with.
pub(crate) struct Lifeline {
    /// Number of the connection on which it was requested.
    pub(crate) connection: u64,
    /// Names of the ports of its streams.
    pub(crate) ports: Vec<String>,
}

/// The streams of a process that is being set up.
#[derive(Default)]
pub(crate) struct PendingStreams {
    /// The port, and the write end of the process's input, unless that is the terminal.
    pub(crate) stdin: Option<(OwnedFd, Option<OwnedFd>)>,
    /// The port, and the read end of the process's output, unless that is the terminal.
    pub(crate) stdout: Option<(OwnedFd, Option<OwnedFd>)>,
    /// The port, and the read end of the process's standard error.
    pub(crate) stderr: Option<(OwnedFd, OwnedFd)>,
}

impl Process {
    pub(crate) fn new(id: ProcessId, setup: ContainerSetup, streams: PendingStreams, caller: Caller) -> Self {
        Self {
            id,
            setup,
            stage: Stage::SettingUp,
            terminal: None,
            streams,
            pending: Some(caller),
            waiting: Vec::new(),
            deleting: None,
            template: Template::default(),
            lifeline: None,
            abandoned: false,
        }
    }

    pub(crate) fn group(&self) -> &Group {
        &self.setup.group
    }

    /// Whether it was not reaped.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.stage, Stage::Exited(_))
    }

    /// Whether its messages about its set-up or start are expected.
    pub(crate) fn reports(&self) -> bool {
        matches!(self.stage, Stage::SettingUp | Stage::Starting)
    }

    pub(crate) fn state(&self) -> ProcessState {
        let pid = self.setup.pid.as_raw_pid().cast_unsigned();
        match self.stage {
            Stage::Exited(exit) => ProcessState { status: Status::Exited, pid: 0, exit: Some(exit) },
            Stage::SettingUp | Stage::Created => ProcessState { status: Status::Created, pid, exit: None },
            Stage::Starting | Stage::Running | Stage::Failed => {
                ProcessState { status: Status::Running, pid, exit: None }
            }
        }
    }

    /// Records how it exited.
    pub(crate) fn exited(&mut self, status: WaitStatus) {
        let signal = status.terminating_signal();
        let code = status.exit_status().or(signal.map(|signal| 128 + signal)).unwrap_or(255);
        let oom_killed = self.group().oom_kills() > 0;
        self.stage = Stage::Exited(Exit { code, signal, oom_killed, at: clock::now() });
    }
}

/// Why a process cannot be used.
pub(crate) type Outcome<T> = Result<T, Failure>;
