//! What the monitor and a log writer send each other. Both are the same program: one is a clone of the other.

use serde::{Deserialize, Serialize};

use crate::{log::sink::Loss, stream::StreamKind};

/// How far the end of a container is, as its writer must know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum End {
    /// It may run.
    #[default]
    Open,
    /// Its first process ended: no part of a line waits for the rest any longer than it must.
    Ended,
    /// Nothing that matters is written anymore: what is there is all.
    Final,
}

/// Monitor to writer. Descriptors are named in brackets.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Move this container's output [its streams in their order, then its log].
    Add(Add),
    /// Continue in this file [log]. Answered by `Reopened`.
    Reopen { serial: u64 },
    /// Copy output to this pipe too [pipe].
    Tap { serial: u64, number: u8, kind: StreamKind },
    /// The container's end came nearer.
    End { serial: u64, end: End },
    /// All of it is in the log and with its clients, and the monitor has closed its descriptors. Not answered.
    Close { serial: u64 },
    /// Give up what is left. Answered by `Drained`.
    Forget { serial: u64 },
}

/// A container's output.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Add {
    pub(crate) serial: u64,
    /// Container id.
    pub(crate) container: String,
    /// Longest piece of a line.
    pub(crate) line_max: usize,
    /// Which stream, and whether it is a terminal.
    pub(crate) streams: Vec<(StreamKind, bool)>,
    /// Whether there is a log.
    pub(crate) log: bool,
    pub(crate) loss: Loss,
    /// Journals with a batch of this container that must be recovered first. Answered by `Recovered`, if there are any.
    pub(crate) recover: Vec<String>,
    pub(crate) end: End,
}

/// Writer to monitor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The journals of `Add` are done with; `failed`: not all of them, they are kept.
    Recovered { serial: u64, failed: bool },
    /// From here on only the new file is written.
    Reopened { serial: u64 },
    /// A client is gone, or took nothing for too long.
    TapClosed { serial: u64, number: u8 },
    /// Output was dropped, or the log was given the count; `message`: the daemon is to be notified, too.
    Lost { serial: u64, loss: Loss, message: Option<String> },
    /// The container held up its writer for too long, all in all: another one is to move its output. Here it waits for
    /// `Close`.
    Held { serial: u64 },
    /// All output of a container that ended is in its log and with its clients. Here it waits for `Close`.
    Drained { serial: u64 },
}
