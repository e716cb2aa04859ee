use serde::{Deserialize, Serialize};

use crate::{OciRuntime, PendingHooks, RuntimeCommand};

/// A request of the daemon. The roles of its descriptors are in brackets.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// First request on every connection.
    Hello {
        /// [`crate::MAJOR`] of the daemon.
        major: u32,
        /// [`crate::MINOR`] of the daemon.
        minor: u32,
    },
    /// Lists all objects of the monitor. Answered by `Holding` × n and `Done`, all with the number of this request.
    Inventory,
    /// Takes over an object of a monitor that died [Pidfd, Sync, StdoutRead, StderrRead, StdinHold, Log, LOG_DIRECTORY,
    /// Terminal, Seccomp]. Without Seccomp, an exec in the container must attach its own program, unless the container has no
    /// seccomp filter.
    Adopt(Adopt),
    /// Sends mounts of a container before its `Create`, if they do not fit into that [Mount(n)]. It can be repeated, up
    /// to [`crate::MOUNTS_MAX`] mounts in total. The mounts are closed with the connection, and by `Delete`. Contract
    /// 1.5.
    Mounts {
        /// Container id.
        container: String,
    },
    /// Creates a container that waits for `Start` [Rootfs, Mount(n), Namespace(k), Stdin, Stdout, Stderr, StdinHold,
    /// StdoutRead, StderrRead, Log, LOG_DIRECTORY, Seccomp, Interpreter, Code]. Answered by `Created` [Pidfd, Sync,
    /// Terminal]. With an OCI runtime also [Bundle, ConsoleSocket], and the answer has no Sync. An external container has
    /// neither Rootfs nor mounts, namespaces and streams of its own, and the answer has no descriptors and pid 0.
    Create(Box<Create>),
    /// Starts a created container. Answered when `execve` succeeded or failed.
    Start {
        /// Container id.
        container: String,
        /// Whether its OCI runtime has started it under a monitor that has died since: it is only noted as running.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        has_started: bool,
    },
    /// Sends a signal.
    Kill(Kill),
    /// Executes a process in a container [Stdin, Stdout, Stderr, Seccomp (default: that of the container)]. Answered by
    /// `ExecStarted` [Pidfd, Terminal] once `execve` succeeded. Its exit is reported by `Event::ExecExited`.
    Exec(Box<Exec>),
    /// Copies the output of the container to these pipes from now on, until they close [Stdout, Stderr].
    Attach(Attach),
    /// Closes the monitor's write end of the container's standard input.
    CloseStdin {
        /// Container id.
        container: String,
    },
    /// Continues the log in this file [Log, LOG_DIRECTORY].
    ReopenLog {
        /// Container id.
        container: String,
    },
    /// Changes the window size of a terminal.
    ResizeTerminal {
        /// Container or exec'd process.
        target: Target,
        /// New size.
        size: oci::TerminalSize,
    },
    /// Removes the cgroup and the record of a container or pod init. A running one is killed first. Succeeds for
    /// unknown ids.
    Delete {
        /// Id of the container or pod init.
        container: String,
    },
    /// Runs `delete --force` of an OCI runtime for a container that the monitor does not know, because its creation was
    /// interrupted. Contract 1.7.
    RuntimeDelete {
        /// Container id.
        container: String,
        /// The runtime.
        runtime: Box<OciRuntime>,
    },
    /// Runs a command of a runtime [Namespace(Mount) in which it runs (default: that of the node), Stdin]. Answered by
    /// `CommandOutput` when it has exited with code 0. Contract 1.8.
    RuntimeCommand(Box<RuntimeCommand>),
    /// Records the exit of a container that has no process of its own ([`Create::external`]): its output is drained, and
    /// `Event::Exited` is sent. Succeeds for one that has ended. Contract 1.8.
    End {
        /// Container id.
        container: String,
        /// Its exit status. OOM kills of its cgroup are added.
        status: ExitStatus,
    },
    /// Starts the init of a pod with a shared PID namespace [Namespace(k)]. Answered by `PodInitStarted` [Pidfd,
    /// Namespace(Pid)].
    PodInit(PodInit),
    /// Keeps these descriptors open under a key, replacing the previous ones [Kept(n)].
    Keep {
        /// Chosen by the daemon, for example `sandbox/<id>`.
        key: String,
    },
    /// Closes the descriptors of this key. Succeeds for unknown keys.
    Release {
        /// The key.
        key: String,
    },
    /// Creates namespaces that are owned by a user namespace [Namespace(User) if it exists, else a new one is created].
    /// Answered by `NamespacesMade` [Namespace(User), and of Namespace(Network), Namespace(Ipc), Namespace(Uts) the
    /// requested ones]. Contract 1.2.
    MakeNamespaces(MakeNamespaces),
    /// Ends the monitor if it holds no object; otherwise fails with `FailureKind::State`.
    Shutdown,
    /// Executes this program in the process of the monitor [Program]. The connection stays open. Answered by `Welcome`
    /// of the new program, or by `FailureKind::State` with the reason why the old program keeps running. Contract 1.1.
    Upgrade,
    /// Heartbeat of the monitor. Answered immediately by `Pong`. Contract 1.3.
    Ping,
}

/// An event that the monitor reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A container or pod init exited, and all of its output is in the log. If the log hangs, the event is sent after 2
    /// s, before the remaining output is written.
    Exited {
        /// Container id.
        container: String,
        /// Exit status.
        status: ExitStatus,
    },
    /// Sent before `Exited` if output has not reached the log because the log hangs. If this monitor dies, its
    /// successor must be given the streams of the container. Contract 1.3.
    OutputPending {
        /// Container id.
        container: String,
    },
    /// All output reported by `OutputPending` is in the log. Contract 1.3.
    Drained {
        /// Container id.
        container: String,
    },
    /// An exec'd process exited and was reaped.
    ExecExited {
        /// Id of the exec.
        exec: String,
        /// Id of its container.
        container: String,
        /// Exit status.
        status: ExitStatus,
    },
    /// Output was dropped because the log could not be written.
    LogFailed {
        /// Container id.
        container: String,
        /// Cause.
        message: String,
        /// Number of bytes dropped so far.
        dropped: u64,
    },
}

/// Exit status of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitStatus {
    /// Exit code, 128 + signal for a killed process. `None` if it is unknown; it is never invented.
    pub code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// Whether the OOM killer of the kernel killed a process of this container.
    pub oom_killed: bool,
    /// Time of the exit, in nanoseconds since the epoch.
    pub at: u64,
}

/// Reply to `Hello`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Welcome {
    /// [`crate::MAJOR`] of the monitor.
    pub major: u32,
    /// [`crate::MINOR`] of the monitor.
    pub minor: u32,
    /// Pid of the monitor in the initial PID namespace.
    pub pid: u32,
    /// Version of the program, for `pinion version` and logs.
    pub version: String,
}

/// Parameters of a new container.
#[derive(Debug, Serialize, Deserialize)]
pub struct Create {
    /// Container id: `[A-Za-z0-9._-]{1,128}`.
    pub container: String,
    /// Id of its sandbox, returned by `Inventory`.
    pub sandbox: String,
    /// The complete OCI spec. A terminal is allocated if `process.terminal` is set. `linux.seccomp` is ignored if a
    /// compiled program is attached. `linux.cgroupsPath` is `/parent/…/name` in every hierarchy.
    pub spec: oci::Spec,
    /// How the log is written.
    pub log: LogOptions,
    /// Absolute path, on the node, of a directory with `config.json` and an empty `rootfs`, for hooks. Contract 1.2.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bundle: String,
    /// Number of mounts that were sent for the container, by `Mounts` and with this request. The request is refused if
    /// the monitor received another number. Contract 1.5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounts: Option<usize>,
    /// The OCI runtime that creates the container, from the `config.json` in its bundle. The monitor then uses only the
    /// cgroup and the namespaces of `spec`. Contract 1.7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Box<OciRuntime>>,
    /// Whether the container has no process that the monitor knows: a shim or a virtual machine runs it. The monitor keeps
    /// its cgroup, its output and its exit status, which `End` states. Contract 1.8.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub external: bool,
    /// First arguments of the program that executes the command of the container, which requires `Role::Interpreter`.
    /// `--code-fd=N` with the descriptor of `Role::Code`, if there is one, `--` and the command follow. Processes of
    /// `Exec` are executed without it. Contract 1.8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<Vec<String>>,
}

/// How a container's log is written (CRI log format).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogOptions {
    /// Maximum length in bytes of a piece of a line. A longer line is written as several `P` entries.
    pub line_max: u32,
    /// No log is attached yet because its file system does not respond. Output stays in its FIFOs until `ReopenLog`
    /// attaches a log.
    #[serde(default)]
    pub awaited: bool,
    /// Limit of its size, which requires `Role::LOG_DIRECTORY`. Contract 1.7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LogLimit>,
}

/// Limit of the size of a log. A log that would exceed it is replaced by an empty file, as conmon does
/// (`--log-size-max`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimit {
    /// Maximum size of the file in bytes, at least [`LogLimit::SIZE_MIN`].
    pub size_max: u64,
    /// Name of the file in its directory.
    pub name: String,
}

impl LogLimit {
    /// Smallest size in bytes. CRI-O refuses smaller ones, too.
    pub const SIZE_MIN: u64 = 8192;
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { line_max: 16 * 1024, awaited: false, limit: None }
    }
}

/// Reply to `Create`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Created {
    /// Pid of the init process in the initial PID namespace.
    pub pid: u32,
    /// Start time of the init process in clock ticks since boot (`/proc/<pid>/stat` field 22). Pid and start time
    /// identify it.
    pub start_time: u64,
    /// Settings that were clamped or ignored, for the log of the daemon.
    pub warnings: Vec<String>,
}

/// Which processes a signal goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KillScope {
    /// The init process of the container, or the exec'd process.
    Init,
    /// Every process of the cgroup; for SIGKILL by `cgroup.kill` if the kernel has it.
    All,
}

/// A container or an exec'd process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A container or pod init, by its id.
    Container(String),
    /// A process started by `Exec`, by its id.
    Exec(String),
}

/// Parameters of `Request::Kill`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kill {
    /// Recipient of the signal. For an exec, `All` signals every process of its sub-cgroup.
    pub target: Target,
    /// Signal number, 1 to 64.
    pub signal: i32,
    /// Which processes of the recipient get the signal.
    pub scope: KillScope,
}

/// Parameters of `Request::Exec`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Exec {
    /// Unique id of the exec, chosen by the daemon.
    pub exec: String,
    /// Id of the container.
    pub container: String,
    /// Arguments, environment, user, capabilities, working directory, terminal, … (runtime specification, `process`).
    pub process: oci::Process,
}

/// Reply to `Exec`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecStarted {
    /// Pid of the process in the initial PID namespace.
    pub pid: u32,
    /// Settings that were clamped or ignored.
    pub warnings: Vec<String>,
}

/// Parameters of `Request::Attach`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attach {
    /// Container id.
    pub container: String,
}

/// Parameters of `Request::PodInit`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PodInit {
    /// Its id (`<sandbox id>`), for `Kill` and `Delete`.
    pub container: String,
    /// Path of its cgroup, as in `linux.cgroupsPath`.
    pub cgroup: String,
    /// Mappings of the user namespace, if one is attached. Contract 1.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserMappings>,
}

/// Id mappings of a user namespace, see user_namespaces(7). Both must map container id 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserMappings {
    /// Mappings of user ids.
    pub uids: Vec<oci::IdMapping>,
    /// Mappings of group ids.
    pub gids: Vec<oci::IdMapping>,
}

impl UserMappings {
    /// Returns the user and group on the node that root of the user namespace is mapped to.
    pub fn root(&self) -> (u32, u32) {
        let host_id =
            |map: &[oci::IdMapping]| map.iter().find(|line| line.container_id == 0).map_or(0, |line| line.host_id);
        (host_id(&self.uids), host_id(&self.gids))
    }
}

/// Parameters of `Request::MakeNamespaces`: namespaces of a pod with a user namespace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MakeNamespaces {
    /// Id mappings of a new user namespace.
    pub user: UserMappings,
    /// Whether to create a network namespace, with `lo` up.
    pub network: bool,
    /// Whether to create an IPC namespace.
    pub ipc: bool,
    /// Host name of the UTS namespace to create. `None`: none is created.
    pub hostname: Option<String>,
}

/// Reply to `PodInit`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PodInitStarted {
    /// Its pid in the initial PID namespace.
    pub pid: u32,
    /// Its start time in clock ticks since boot.
    pub start_time: u64,
}

/// What outlives the monitor of a container or pod init: `Inventory` lists it, `Adopt` hands it to the next monitor, and
/// an upgrade of the monitor saves it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerDescription {
    /// Container id.
    pub id: String,
    /// Id of its sandbox, as given to `Create`.
    pub sandbox: String,
    /// Path of its cgroup, as in `linux.cgroupsPath`.
    pub cgroup: String,
    /// Pid of the init process in the initial PID namespace.
    pub pid: u32,
    /// Start time of the init process in clock ticks since boot.
    pub start_time: u64,
    /// How its log is written.
    pub log: LogOptions,
    /// Hooks that have not run yet. Contract 1.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Box<PendingHooks>>,
    /// Whether the container has its own user namespace, new or joined, according to its spec. `None`: the sender
    /// implements a contract before 1.4; the monitor then asks the kernel when it adopts the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_namespace: Option<bool>,
    /// The OCI runtime that created the container, starts and deletes it. `None`: the monitor itself. Contract 1.7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Box<OciRuntime>>,
    /// Whether the container has no process that the monitor knows: a shim or a virtual machine runs it. The monitor keeps
    /// its cgroup, its output and its exit status, which `End` states. Contract 1.8.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub external: bool,
}

/// An object of the monitor: a container, a pod init, or the descriptors of a key. Its descriptors are those of
/// `Request::Adopt`, or `Kept(n)`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Holding {
    /// The container. If the state is `HoldingState::Kept`, only its id is set, which is the key.
    #[serde(flatten)]
    pub container: ContainerDescription,
    /// State of the object.
    pub state: HoldingState,
}

/// State of an object of the monitor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldingState {
    /// Set up and waiting for `Start`.
    Created,
    /// Running its program.
    Running,
    /// Exited with this status.
    Exited(ExitStatus),
    /// A pod init.
    PodInit,
    /// Descriptors kept open under a key.
    Kept,
}

/// Parameters of `Request::Adopt`: an object of a monitor that died.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Adopt {
    /// The object, as the dead monitor would have listed it.
    pub holding: Holding,
}

#[cfg(test)]
mod tests;
