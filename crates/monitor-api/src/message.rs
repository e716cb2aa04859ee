use serde::{Deserialize, Serialize};

use crate::{Failure, HeldHooks, Pong, Role};

/// One frame on the wire.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Envelope {
    /// Daemon to monitor.
    Request {
        /// Chosen by the daemon; the reply carries it.
        seq: u64,
        /// What is asked.
        body: Box<Request>,
        /// Roles of the attached descriptors, in their order.
        #[serde(default)]
        roles: Vec<Role>,
    },
    /// Monitor to daemon: the answer to `seq`.
    Reply {
        /// The request's number.
        seq: u64,
        /// The answer.
        body: Result<Reply, Failure>,
        /// Roles of the attached descriptors, in their order.
        #[serde(default)]
        roles: Vec<Role>,
    },
    /// Monitor to daemon, unasked.
    Event(Event),
}

/// What the daemon asks for. Descriptors are named in brackets.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// First on every connection.
    Hello {
        /// [`crate::MAJOR`] of the daemon.
        major: u32,
        /// [`crate::MINOR`] of the daemon.
        minor: u32,
    },
    /// Everything the monitor holds: answered by `Holding` × n and `Done`, all with this request's number.
    Inventory,
    /// Take over an object that a dead monitor held [Pidfd, Sync, StdoutRead, StderrRead, StdinHold, Log, Terminal,
    /// Seccomp]. Without Seccomp, commands can only be run in it if they bring theirs, or it has none.
    Adopt(Adopt),
    /// Mounts of a container whose `Create` follows on this connection, where they do not fit that [Mount(n)]: as many
    /// times as needed, [`crate::MOUNTS_MAX`] in all. They are closed with the connection, and by `Delete`. Contract
    /// 1.5.
    Mounts {
        /// Container id.
        container: String,
    },
    /// Make a container that waits for `Start` [Rootfs, Mount(n), Namespace(k), Stdin, Stdout, Stderr, StdinHold,
    /// StdoutRead, StderrRead, Log, Seccomp]. Answered by `Created` [Pidfd, Sync, Terminal].
    Create(Box<Create>),
    /// Let a created container run; answered when `execve` succeeded or failed.
    Start {
        /// Container id.
        container: String,
    },
    /// Send a signal.
    Kill(Kill),
    /// Run a command in a container [Stdin, Stdout, Stderr, Seccomp (else the container's)]. Answered by `ExecStarted`
    /// [Pidfd, Terminal] once `execve` succeeded; its end is an `Event::ExecExited`.
    Exec(Box<Exec>),
    /// Copy the container's output to these pipes from now on [Stdout, Stderr], until they close.
    Attach(Attach),
    /// Close the monitor's hold of the container's standard input.
    CloseStdin {
        /// Container id.
        container: String,
    },
    /// Continue in this file [Log].
    ReopenLog {
        /// Container id.
        container: String,
    },
    /// Change the window size of a terminal.
    ResizeTerminal {
        /// Container or command.
        target: Target,
        /// New size.
        size: TerminalSize,
    },
    /// Remove the cgroup and forget the record of a container or pod init that ended; a living one is killed first.
    /// Unknown ids succeed.
    Delete {
        /// Container or pod-init id.
        container: String,
    },
    /// Start the init of a pod that shares one PID namespace [Namespace(k)]. Answered by `PodInitStarted`
    /// [Pidfd, Namespace(Pid)].
    PodInit(PodInit),
    /// Hold these descriptors under a key, replacing what was there [Kept(n)].
    Keep {
        /// Chosen by the daemon, for example `sandbox/<id>`.
        key: String,
    },
    /// Close what is held under this key. Unknown keys succeed.
    Release {
        /// The key.
        key: String,
    },
    /// Make namespaces that a user namespace owns [Namespace(User) where it is there already, else a new one]. Answered
    /// by `NamespacesMade` [Namespace(User), Namespace(Network), Namespace(Ipc), Namespace(Uts), as asked for].
    /// Contract 1.2.
    MakeNamespaces(MakeNamespaces),
    /// End, if nothing is held; else `FailureKind::State`.
    Shutdown,
    /// Execute this program in the monitor's process [Program]. The connection stays; answered by `Welcome` of the new
    /// program, or by `FailureKind::State` with the reason why the old one goes on. Contract 1.1.
    Upgrade,
    /// Answered at once by `Pong`, whatever else goes on: the monitor's heartbeat. Contract 1.3.
    Ping,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It is done.
    Done,
    /// To `Hello` and `Upgrade`.
    Welcome(Welcome),
    /// To `Inventory`, one per object.
    Holding(Box<Holding>),
    /// To `Create`.
    Created(Created),
    /// To `Exec`.
    ExecStarted(ExecStarted),
    /// To `PodInit`.
    PodInitStarted(PodInitStarted),
    /// To `MakeNamespaces`.
    NamespacesMade,
    /// To `Ping`.
    Pong(Pong),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A container or pod init ended, its output is in the log to the last byte; where the log hangs, it is reported 2
    /// s later all the same, and the output follows.
    Exited {
        /// Container id.
        container: String,
        /// How.
        status: ExitStatus,
    },
    /// Comes before `Exited` where output is still on its way to a log that hangs: the streams must be handed to the
    /// next monitor, should this one die. Contract 1.3.
    OutputPending {
        /// Container id.
        container: String,
    },
    /// All of that output is in the log. Contract 1.3.
    Drained {
        /// Container id.
        container: String,
    },
    /// A command run by `Exec` ended and was reaped.
    ExecExited {
        /// The command's id.
        exec: String,
        /// Its container.
        container: String,
        /// How.
        status: ExitStatus,
    },
    /// Output had to be dropped: the log could not be written.
    LogFailed {
        /// Container id.
        container: String,
        /// Why.
        message: String,
        /// Bytes dropped so far.
        dropped: u64,
    },
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitStatus {
    /// Exit code, 128 + signal for a killed process, `None` where it cannot be known any more (never invented).
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether the kernel's OOM killer ended a process of this container.
    pub oom_killed: bool,
    /// When, nanoseconds since the epoch.
    pub at: u64,
}

/// To `Hello`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Welcome {
    /// [`crate::MAJOR`] of the monitor.
    pub major: u32,
    /// [`crate::MINOR`] of the monitor.
    pub minor: u32,
    /// The monitor's pid in the initial PID namespace.
    pub pid: u32,
    /// Program version, for `pinion version` and logs.
    pub version: String,
}

/// A container to make.
#[derive(Debug, Serialize, Deserialize)]
pub struct Create {
    /// Container id: `[A-Za-z0-9._-]{1,128}`.
    pub container: String,
    /// Its sandbox's id, kept for `Inventory`.
    pub sandbox: String,
    /// The whole OCI spec. `process.terminal` asks for a terminal; `linux.seccomp` is ignored when a compiled program
    /// is attached; `linux.cgroupsPath` is `/parent/…/name` in every hierarchy.
    pub spec: oci::Spec,
    /// How to write the log.
    pub log: LogOptions,
    /// Absolute path of a directory of the node with `config.json` and an empty `rootfs`, for hooks. Contract 1.2.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bundle: String,
    /// How many mounts were sent for it, with `Mounts` and with this: refused where others are there. Contract 1.5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounts: Option<usize>,
}

/// How a container's log is written (CRI log format).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogOptions {
    /// Longest piece of a line in bytes; a longer line is written as several `P` entries.
    pub line_max: u32,
    /// No log is attached yet, since its file system does not answer: output is not moved before `ReopenLog` brings
    /// one.
    #[serde(default)]
    pub awaited: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { line_max: 16 * 1024, awaited: false }
    }
}

/// To `Create`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Created {
    /// Init's pid in the initial PID namespace.
    pub pid: u32,
    /// Init's start time, clock ticks since boot (`/proc/<pid>/stat` field 22): with the pid, its identity.
    pub start_time: u64,
    /// What was clamped or left out, for the daemon's log.
    pub warnings: Vec<String>,
}

/// Which processes a signal goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KillScope {
    /// The first process.
    Init,
    /// Every process of the cgroup (`cgroup.kill` for SIGKILL where there is one).
    All,
}

/// Container or command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A container (or a pod init).
    Container(String),
    /// A command run by `Exec`.
    Exec(String),
}

/// Send a signal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kill {
    /// To whom. For a command, `All` kills the whole sub-group it runs in.
    pub target: Target,
    /// Signal number, 1 to 64.
    pub signal: i32,
    /// How far.
    pub scope: KillScope,
}

/// A command to run in a container.
#[derive(Debug, Serialize, Deserialize)]
pub struct Exec {
    /// Unique id of the command, chosen by the daemon.
    pub exec: String,
    /// The container.
    pub container: String,
    /// Arguments, environment, user, capabilities, working directory, terminal, … (runtime spec, `process`).
    pub process: oci::Process,
}

/// To `Exec`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecStarted {
    /// Its pid in the initial PID namespace.
    pub pid: u32,
    /// What was clamped or left out.
    pub warnings: Vec<String>,
}

/// Copy output to pipes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attach {
    /// Container id.
    pub container: String,
}

/// The init of a pod with a shared PID namespace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PodInit {
    /// Its id (`<sandbox id>`), for `Kill` and `Delete`.
    pub container: String,
    /// Its cgroup, as `linux.cgroupsPath`.
    pub cgroup: String,
    /// Of its user namespace, where one is attached. Contract 1.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserMappings>,
}

/// Maps of a user namespace (user_namespaces(7)); container id 0 must be in both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserMappings {
    /// Users.
    pub uids: Vec<oci::IdMapping>,
    /// Groups.
    pub gids: Vec<oci::IdMapping>,
}

/// Namespaces of a pod with a user namespace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MakeNamespaces {
    /// Of the new user namespace.
    pub user: UserMappings,
    /// A network namespace, with `lo` up.
    pub network: bool,
    /// An IPC namespace.
    pub ipc: bool,
    /// A UTS namespace of this name.
    pub hostname: Option<String>,
}

/// To `PodInit`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PodInitStarted {
    /// Its pid in the initial PID namespace.
    pub pid: u32,
    /// Its start time in clock ticks since boot.
    pub start_time: u64,
}

/// Columns and rows of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// What the monitor holds: one container, pod init, or kept key. Descriptors as in `Request::Adopt`, and `Kept(n)`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Holding {
    /// Container id, or the key for `HoldingState::Kept`.
    pub id: String,
    /// The sandbox it belongs to, as given at `Create`.
    pub sandbox: String,
    /// Its cgroup path, as `linux.cgroupsPath`.
    pub cgroup: String,
    /// Init's pid in the initial PID namespace.
    pub pid: u32,
    /// Init's start time in clock ticks since boot.
    pub start_time: u64,
    /// How it writes its log.
    pub log: LogOptions,
    /// Where it stands.
    pub state: HoldingState,
    /// Contract 1.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Box<HeldHooks>>,
    /// Whether it has a user namespace of its own, new or joined, as its spec has it; `None`: sent by a side before
    /// contract 1.4, and asked of the kernel when the container is adopted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_namespace: Option<bool>,
}

/// Where a held object stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldingState {
    /// Set up, waiting for `Start`.
    Created,
    /// Its program runs.
    Running,
    /// It ended.
    Exited(ExitStatus),
    /// A pod init.
    PodInit,
    /// Descriptors kept under a key.
    Kept,
}

/// Take over an object of a monitor that died.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Adopt {
    /// As the dead monitor would have told it.
    pub holding: Holding,
}
