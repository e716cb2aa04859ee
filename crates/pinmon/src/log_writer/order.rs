//! Messages between the monitor and a log writer. Both are the same program, because one is a clone of the other.

use monitor_api::LogLimit;
use serde::{Deserialize, Serialize};

use crate::{log::sink::Loss, stream::StreamKind};

/// Phase of the container's exit that its log writer must know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum EndPhase {
    /// It may be running.
    #[default]
    Open,
    /// Its first process exited: partial lines are written without further waiting.
    Ended,
    /// No further output matters: only the available output is moved.
    Final,
}

/// Monitor to log writer. Descriptors are in brackets.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Move the output of this container [its streams in order, then its log, then the directory of its log].
    Add(Add),
    /// Continue the log in this file [log, its directory if it has a limit]. Answered by `Reopened`.
    Reopen { serial: u64 },
    /// Copy output to this pipe too [pipe].
    Tap { serial: u64, number: u8, kind: StreamKind },
    /// The container entered this phase of its exit.
    End { serial: u64, end: EndPhase },
    /// Close the descriptors of an output that was drained or replaced; the monitor has closed its own. Not answered.
    Close { serial: u64 },
    /// Give up the remaining output. Answered by `Drained`.
    Forget { serial: u64 },
}

/// Output of a container.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Add {
    pub(crate) serial: u64,
    /// Container id.
    pub(crate) container: String,
    /// Maximum length of a piece of a line.
    pub(crate) line_max: usize,
    /// The streams, and whether each is a terminal.
    pub(crate) streams: Vec<(StreamKind, bool)>,
    /// Whether a log is attached.
    pub(crate) log: bool,
    /// Limit of the size of the log, if the directory of the log is attached.
    pub(crate) limit: Option<LogLimit>,
    pub(crate) loss: Loss,
    /// Journals with a batch of this container that must be recovered first. If there are any, answered by `Recovered`.
    pub(crate) recover: Vec<String>,
    pub(crate) end: EndPhase,
}

/// Log writer to monitor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The journals of `Add` were recovered; `failed`: not all of them, and they are kept.
    Recovered { serial: u64, failed: bool },
    /// From now on only the new file is written.
    Reopened { serial: u64 },
    /// A client closed its pipe, or did not read for too long.
    TapClosed { serial: u64, number: u8 },
    /// Output was dropped, or the loss was reported in the log. With `message`, the daemon must be notified too.
    Lost { serial: u64, loss: Loss, message: Option<String> },
    /// The container blocked its log writer for too long in total, and another one must move its output. This writer
    /// keeps the descriptors until `Close`.
    Held { serial: u64 },
    /// All output of an exited container is in its log and was sent to its clients. The descriptors are kept until
    /// `Close`.
    Drained { serial: u64 },
}
