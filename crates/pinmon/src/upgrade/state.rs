//! What is saved. Numbers of descriptors are those of the process.

use std::time::Duration;

use monitor_api::{ExitStatus, HeldHooks, LogOptions};
use serde::{Deserialize, Serialize};

use crate::{connection::Asked, stream::StreamKind, timer::Timer};

/// Number of this format; see the module above.
pub(super) const FORMAT: u32 = 1;
/// Largest state that is read.
pub(super) const STATE_MAX: u64 = 256 * 1024 * 1024;

/// A descriptor's number.
pub(super) type Number = i32;

/// What must be read before anything else is believed.
#[derive(Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) format: u32,
    /// [`monitor_api::MAJOR`] of the daemon's and the old program's contract.
    pub(super) contract: u32,
    /// Version of the program that wrote it.
    pub(super) version: String,
}

/// All that the monitor holds.
#[derive(Serialize, Deserialize)]
pub(super) struct State {
    #[serde(flatten)]
    pub(super) head: Head,
    pub(super) asked: Asked,
    /// Every descriptor that is named below.
    pub(super) all: Vec<Number>,
    pub(super) listener: Number,
    /// The state directory, and the name of an idle journal in it.
    pub(super) directory: Number,
    pub(super) journal: String,
    pub(super) trees: Vec<(String, Number)>,
    /// Limits of open files as the daemon gave them (current, maximum), where they were raised.
    pub(super) files: Option<(Option<u64>, Option<u64>)>,
    pub(super) oom_score_adj: i32,
    /// The node's mount namespace; a monitor of before it was held has none.
    #[serde(default)]
    pub(super) node_mounts: Option<Number>,
    pub(super) link: Option<Link>,
    pub(super) links: u64,
    pub(super) serials: u64,
    /// Compiled seccomp programs, each once.
    pub(super) programs: Vec<Vec<u8>>,
    pub(super) containers: Vec<Container>,
    /// Output of containers that were deleted.
    #[serde(default)]
    pub(super) orphans: Vec<Orphan>,
    pub(super) commands: Vec<Command>,
    pub(super) kept: Vec<(String, Vec<Number>)>,
    /// Masters of terminals that are to be closed; see `terminal.rs`.
    #[serde(default)]
    pub(super) closing: Vec<Number>,
    pub(super) timers: Vec<(Duration, Timer)>,
}

/// The connection to the daemon.
#[derive(Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) fd: Number,
    pub(super) number: u64,
    pub(super) greeted: bool,
}

/// A container or pod init.
#[derive(Serialize, Deserialize)]
pub(super) struct Container {
    pub(super) serial: u64,
    pub(super) id: String,
    pub(super) sandbox: String,
    pub(super) cgroup: String,
    /// Whether the group is held.
    pub(super) grouped: bool,
    pub(super) pid: i32,
    pub(super) start_time: u64,
    pub(super) pidfd: Option<Number>,
    pub(super) log: LogOptions,
    pub(super) output: Output,
    pub(super) stdin: Option<Number>,
    pub(super) filter: Filter,
    #[serde(default)]
    pub(super) hooks: Option<Box<HeldHooks>>,
    pub(super) pod_init: bool,
    /// `None`: of a program that did not have it on record.
    #[serde(default)]
    pub(super) user_namespace: Option<bool>,
    pub(super) stage: Stage,
    pub(super) warnings: Vec<String>,
    pub(super) deletes: Vec<Asked>,
    pub(super) removals: u32,
}

/// Only those stages in which nobody waits for an answer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    /// With its start gate.
    Created(Number),
    Running,
    Draining(ExitStatus),
    Exited(ExitStatus),
}

/// As in `programs.rs`, by index.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Filter {
    Program(usize),
    None,
    Unknown,
}

/// See `writers.rs`.
#[derive(Serialize, Deserialize)]
pub(super) struct Orphan {
    pub(super) serial: u64,
    /// The container's id.
    pub(super) id: String,
    pub(super) output: Output,
}

/// See `output.rs`.
#[derive(Serialize, Deserialize)]
pub(super) struct Output {
    pub(super) line_max: usize,
    pub(super) streams: Vec<Stream>,
    pub(super) sink: Sink,
    pub(super) taps: Vec<Tap>,
    /// It has a log writer apart.
    #[serde(default)]
    pub(super) apart: bool,
}

/// See `output.rs`.
#[derive(Serialize, Deserialize)]
pub(super) struct Stream {
    pub(super) kind: StreamKind,
    pub(super) fd: Number,
    pub(super) terminal: bool,
    /// Programs of before there were log writers know these three.
    pub(super) ended: bool,
    pub(super) looks: u8,
    pub(super) resting: bool,
}

/// See `log/sink.rs`.
#[derive(Serialize, Deserialize)]
pub(super) struct Sink {
    pub(super) file: Option<Number>,
    pub(super) total: u64,
    pub(super) unwritten: Option<(u64, String)>,
    pub(super) tell_at: u64,
}

/// See `attach.rs`.
#[derive(Serialize, Deserialize)]
pub(super) struct Tap {
    pub(super) number: u8,
    pub(super) kind: StreamKind,
    pub(super) pipe: Number,
}

/// A command that runs, or what one left.
#[derive(Serialize, Deserialize)]
pub(super) struct Command {
    pub(super) serial: u64,
    pub(super) id: String,
    pub(super) container: String,
    pub(super) pid: i32,
    pub(super) pidfd: Number,
    pub(super) sync: Number,
    pub(super) terminal: Option<Number>,
    pub(super) warnings: Vec<String>,
    /// It was reaped; something it started lives on.
    pub(super) left: bool,
}
