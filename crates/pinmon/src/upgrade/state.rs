//! Format of the saved state. Descriptors are saved by their numbers in this process. The names of fields and variants
//! are part of the format.

use std::time::Duration;

use monitor_api::{ContainerDescription, ExitStatus, LogLimit};
use serde::{Deserialize, Serialize};

use crate::{event::Timer, link::RequestId, stream::StreamKind};

/// Number of this format, see `upgrade.rs`.
pub(super) const FORMAT: u32 = 1;
/// The same format, of a state that has containers without a process of their own. A program that does not know them would
/// lose them.
pub(super) const FORMAT_EXTERNAL: u32 = 2;
/// Maximum size in bytes of a state that is read.
pub(super) const STATE_MAX: u64 = 256 * 1024 * 1024;

/// Number of a descriptor.
pub(super) type FdNumber = i32;

/// Header that is read and validated first.
#[derive(Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) format: u32,
    /// [`monitor_api::MAJOR`] of the previous program, which the connected daemon uses.
    pub(super) contract: u32,
    /// Version of the program that saved the state.
    pub(super) version: String,
}

/// State of the monitor.
#[derive(Serialize, Deserialize)]
pub(super) struct State {
    #[serde(flatten)]
    pub(super) head: Head,
    #[serde(rename = "asked")]
    pub(super) request_id: RequestId,
    /// Every descriptor that is named below.
    pub(super) all: Vec<FdNumber>,
    pub(super) listener: FdNumber,
    /// The state directory, and the name of an idle journal in it.
    #[serde(rename = "folder")]
    pub(super) directory: FdNumber,
    pub(super) journal: String,
    pub(super) trees: Vec<(String, FdNumber)>,
    /// Limits of open files set by the daemon (current, maximum), if the monitor raised them.
    pub(super) files: Option<(Option<u64>, Option<u64>)>,
    pub(super) oom_score_adj: i32,
    /// Mount namespace of the node. Early versions did not save it.
    #[serde(default)]
    pub(super) node_mounts: Option<FdNumber>,
    pub(super) link: Option<Link>,
    pub(super) links: u64,
    pub(super) serials: u64,
    /// Compiled seccomp programs, each once.
    pub(super) programs: Vec<Vec<u8>>,
    pub(super) containers: Vec<Container>,
    /// Paths of slices with their explained OOM kills, see `oom_kills.rs`. Empty without scopes of systemd.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) explained_oom_kills: Vec<(String, u64)>,
    /// Output of deleted containers.
    #[serde(default)]
    pub(super) orphans: Vec<Orphan>,
    pub(super) commands: Vec<Exec>,
    pub(super) kept: Vec<(String, Vec<FdNumber>)>,
    /// Masters of terminals to be closed, see `closing.rs`.
    #[serde(default)]
    pub(super) closing: Vec<FdNumber>,
    pub(super) timers: Vec<(Duration, Timer)>,
}

/// Returns the number of the format of a state with these containers.
pub(super) fn format_with(containers: &[Container]) -> u32 {
    match containers.iter().any(|container| container.description.external) {
        true => FORMAT_EXTERNAL,
        false => FORMAT,
    }
}

/// Connection to the daemon.
#[derive(Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) fd: FdNumber,
    pub(super) number: u64,
    pub(super) greeted: bool,
}

/// A container or pod init.
#[derive(Serialize, Deserialize)]
pub(super) struct Container {
    pub(super) serial: u64,
    #[serde(flatten)]
    pub(super) description: ContainerDescription,
    /// Whether it has a cgroup.
    pub(super) grouped: bool,
    /// OOM kills of its cgroup if that is a scope of systemd, as last read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) oom_kills: Option<u64>,
    pub(super) pidfd: Option<FdNumber>,
    pub(super) output: Output,
    pub(super) stdin: Option<FdNumber>,
    pub(super) filter: Filter,
    pub(super) pod_init: bool,
    pub(super) stage: Stage,
    pub(super) warnings: Vec<String>,
    pub(super) deletes: Vec<RequestId>,
    pub(super) removals: u32,
}

/// Stages without a pending request.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    /// With the descriptor of its start gate.
    Created(FdNumber),
    /// Created by an OCI runtime.
    Waiting,
    Running,
    Draining(ExitStatus),
    Exited(ExitStatus),
}

/// Filter as in `programs.rs`, by index.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Filter {
    Program(usize),
    None,
    Unknown,
}

/// Output of a deleted container, see `output.rs`.
#[derive(Serialize, Deserialize)]
pub(super) struct Orphan {
    pub(super) serial: u64,
    /// Container id.
    pub(super) id: String,
    pub(super) output: Output,
}

/// Output, see `output/streams.rs`.
#[derive(Serialize, Deserialize)]
pub(super) struct Output {
    pub(super) line_max: usize,
    /// Limit of the size of the log, and the directory of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<(LogLimit, FdNumber)>,
    pub(super) streams: Vec<Stream>,
    pub(super) sink: Sink,
    pub(super) taps: Vec<Tap>,
    /// Whether it has a dedicated log writer.
    #[serde(default)]
    pub(super) apart: bool,
}

/// Stream, see `output/streams.rs`.
#[derive(Serialize, Deserialize)]
pub(super) struct Stream {
    pub(super) kind: StreamKind,
    pub(super) fd: FdNumber,
    pub(super) terminal: bool,
    /// These three are for versions without log writers.
    pub(super) ended: bool,
    pub(super) looks: u8,
    pub(super) resting: bool,
}

/// Log and loss, see `log/sink.rs`.
#[derive(Serialize, Deserialize)]
pub(super) struct Sink {
    pub(super) file: Option<FdNumber>,
    pub(super) total: u64,
    pub(super) unwritten: Option<(u64, String)>,
    #[serde(rename = "tell_at")]
    pub(super) report_at: u64,
}

/// Attached client, see `log/taps.rs`.
#[derive(Serialize, Deserialize)]
pub(super) struct Tap {
    pub(super) number: u8,
    pub(super) kind: StreamKind,
    pub(super) pipe: FdNumber,
}

/// A running exec, or one with leftover processes.
#[derive(Serialize, Deserialize)]
pub(super) struct Exec {
    pub(super) serial: u64,
    pub(super) id: String,
    pub(super) container: String,
    pub(super) pid: i32,
    pub(super) pidfd: FdNumber,
    pub(super) sync: FdNumber,
    pub(super) terminal: Option<FdNumber>,
    pub(super) warnings: Vec<String>,
    /// Whether it was reaped, and processes that it started are left over.
    pub(super) left: bool,
}

#[cfg(test)]
mod tests;
