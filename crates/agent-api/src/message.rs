use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Network;

/// The first frame of a connection, from the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the contract: [`crate::VERSION`].
    pub version: u32,
    /// Version of the agent.
    pub agent: String,
    /// Release of the guest's kernel.
    pub kernel: String,
}

/// A request with the number that its answer has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The number, chosen by the daemon.
    pub id: u64,
    /// The request.
    pub request: Request,
}

/// The answer to a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The number of the call.
    pub id: u64,
    /// The result.
    pub result: Result<Reply, Failure>,
}

/// A process: the first one of a container, or one that was executed in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// Id of the container.
    pub container: String,
    /// Id of the executed process; `None`: the first process of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<String>,
}

impl ProcessId {
    /// The first process of a container.
    pub fn container(id: impl Into<String>) -> Self {
        Self { container: id.into(), exec: None }
    }

    /// A process that was executed in a container.
    pub fn exec(container: impl Into<String>, id: impl Into<String>) -> Self {
        Self { container: container.into(), exec: Some(id.into()) }
    }
}

/// The ports of a process's streams. A process with a terminal has no standard error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    /// Standard input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Standard output, or the output of the terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
}

/// The guest as the pod needs it. May be repeated: what is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// The hostname.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The time in nanoseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<u64>,
    /// By how much the time of the guest may differ, in nanoseconds, without being set.
    #[serde(default)]
    pub time_tolerance: u64,
    /// Bytes from the random number generator of the node, for that of the guest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entropy: Vec<u8>,
    /// Links, addresses and routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Sysctls of the pod, by their names with dots.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// Whether the file system of the pod is mounted at [`crate::SHARED`].
    #[serde(default)]
    pub mount_shared: bool,
}

/// A container to create.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateContainer {
    /// Its id.
    pub id: String,
    /// Its specification. Sources of mounts are paths in the guest; `linux.cgroupsPath` is replaced.
    pub spec: oci::Spec,
    /// Absolute path of the root file system in the guest.
    pub rootfs: String,
    /// Its streams.
    pub streams: Streams,
}

/// A process to execute in a running container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exec {
    /// Id of the container.
    pub container: String,
    /// Id of the process, unique in the container.
    pub id: String,
    /// The process.
    pub process: oci::Process,
    /// Its streams.
    pub streams: Streams,
}

/// What the daemon requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "call")]
pub enum Request {
    /// Does nothing: the agent is alive. Answered by `Done`.
    Ping,
    /// Prepares the guest for the pod. Answered by `Done`.
    Configure(Box<Configuration>),
    /// Creates a container, up to the point where it waits for its start. Answered by `Done`, or by a failure of kind
    /// [`FailureKind::Exists`].
    Create(Box<CreateContainer>),
    /// Starts the program of a container. Answered by `Done` when execve(2) has succeeded, and for a running container.
    Start {
        /// Id of the container.
        container: String,
    },
    /// Executes a process in a container. Answered by `Done` when execve(2) has succeeded. It is killed and forgotten when
    /// the connection of the request closes, or a port of its streams is removed.
    Exec(Box<Exec>),
    /// Sends a signal. Answered by `Done` if the process has exited, too.
    Signal {
        /// The process.
        process: ProcessId,
        /// Number of the signal.
        signal: i32,
        /// Whether all processes of the container, or all descendants of an executed process, get it.
        all: bool,
    },
    /// Changes the size of the terminal of a process. Answered by `Done`.
    Resize {
        /// The process.
        process: ProcessId,
        /// The size.
        size: oci::TerminalSize,
    },
    /// Answered by `State`.
    State {
        /// The process.
        process: ProcessId,
    },
    /// Waits for the exit of a process, after which all its output was sent. Answered by `Exited`.
    Wait {
        /// The process.
        process: ProcessId,
    },
    /// Forgets a process. A container that is running is killed first. Answered by `Done`, for an unknown one, too.
    Delete {
        /// The process.
        process: ProcessId,
    },
    /// Changes the limits of a container. Answered by `Done`.
    Update {
        /// Id of the container.
        container: String,
        /// The limits; absent ones stay.
        resources: Box<oci::Resources>,
    },
    /// Freezes or thaws a container. Answered by `Done`.
    Freeze {
        /// Id of the container.
        container: String,
        /// Whether it is to be frozen.
        frozen: bool,
    },
    /// Answered by `Statistics`.
    Statistics {
        /// Id of the container.
        container: String,
    },
    /// Connects to a TCP port on the loopback device of the guest: 127.0.0.1, then ::1. Answered by `Done` when it is
    /// connected, or by a failure of kind [`FailureKind::Unreachable`]. The stream carries the connection in
    /// [chunks](crate::chunk).
    Forward {
        /// Number of the TCP port.
        port: u16,
        /// The virtio-serial port that becomes the connection.
        stream: String,
    },
    /// Sets one of the processors and the memory online that were added since the boot. Answered by `Capacity`.
    Online,
    /// Writes everything to the file systems and powers the guest off. Not answered.
    Shutdown,
}

/// What the agent replies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reply")]
pub enum Reply {
    /// The request was carried out.
    Done,
    /// The state of a process.
    State(ProcessState),
    /// A process has exited.
    Exited(Exit),
    /// The usage of a container.
    Statistics(Statistics),
    /// What the guest has online.
    Capacity(Capacity),
}

/// What the guest has online.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Number of processors.
    pub cpus: u32,
    /// Memory in addition to that of the boot, in bytes.
    pub added_memory: u64,
}

/// Status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It waits for its start.
    Created,
    /// It is running, or frozen.
    Running,
    /// It has exited.
    Exited,
}

/// State of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessState {
    /// Its status.
    pub status: Status,
    /// Its pid in the guest; 0 if it has exited.
    pub pid: u32,
    /// How it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// How a process exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code, 128 + signal for a killed process.
    pub code: i32,
    /// The signal that killed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether the OOM killer of the guest killed a process of it.
    #[serde(default)]
    pub oom_killed: bool,
    /// Time of the exit in nanoseconds since the epoch, by the clock of the guest.
    pub at: u64,
}

/// Usage of a container, as `cgroup` reads it in the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statistics {
    /// CPU time of all processes so far, in nanoseconds.
    pub cpu_usage_ns: u64,
    /// CPU time in user mode, in nanoseconds.
    pub cpu_user_ns: u64,
    /// CPU time in kernel mode, in nanoseconds.
    pub cpu_system_ns: u64,
    /// Memory usage including the page cache, in bytes.
    pub memory_usage: u64,
    /// Memory usage without `inactive_file`, in bytes.
    pub memory_working_set: u64,
    /// Anonymous memory, in bytes.
    pub memory_rss: u64,
    /// Memory limit, in bytes.
    pub memory_limit: Option<u64>,
    /// Page faults so far.
    pub page_faults: u64,
    /// Major page faults so far.
    pub major_page_faults: u64,
    /// Number of tasks (threads).
    pub pids: u64,
    /// Limit of tasks.
    pub pids_limit: Option<u64>,
    /// Number of processes.
    pub processes: u64,
    /// Swap usage, in bytes.
    pub swap_usage: Option<u64>,
    /// Page cache, in bytes.
    pub memory_file: u64,
    /// Elapsed periods of the CPU quota.
    pub cpu_periods: u64,
    /// Periods in which it was throttled.
    pub cpu_throttled_periods: u64,
    /// Throttled time, in nanoseconds.
    pub cpu_throttled_ns: u64,
    /// Number of processes killed by the OOM killer.
    pub oom_kills: u64,
}

/// Class of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The agent does not know the object.
    NotFound,
    /// An object with this id exists.
    Exists,
    /// The request is invalid.
    Invalid,
    /// The state of the object does not allow the operation.
    State,
    /// The command does not exist in the root file system.
    CommandNotFound,
    /// The command exists and cannot be executed.
    CommandNotExecutable,
    /// Nothing accepts the connection.
    Unreachable,
    /// A device of the pod is not there.
    Absent,
    /// A system call failed, or a limit of the agent was reached.
    System,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Its class.
    pub kind: FailureKind,
    /// Operation, object and cause.
    pub message: String,
}

impl Failure {
    /// Returns a failure of this class.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_the_same_after_a_transfer() {
        let requests = [
            Request::Ping,
            Request::Configure(Box::default()),
            Request::Signal { process: ProcessId::exec("web", "e1"), signal: 15, all: true },
        ];
        for request in requests {
            let json = serde_json::to_string(&request).expect("JSON");
            let again: Request = serde_json::from_str(&json).expect("a request");
            assert_eq!(serde_json::to_string(&again).expect("JSON"), json);
        }
        let exit = Exit { code: 137, signal: Some(9), oom_killed: true, at: 1 };
        let answer = Answer { id: 7, result: Ok(Reply::Exited(exit)) };
        let again: Answer = serde_json::from_value(serde_json::to_value(&answer).expect("JSON")).expect("an answer");
        assert_eq!(again.result, Ok(Reply::Exited(exit)));
    }
}
