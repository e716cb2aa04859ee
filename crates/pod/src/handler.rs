//! Runtime handlers that an administrator configures.

use std::{path::PathBuf, time::Duration};

/// A runtime handler whose containers a program with the command line of runc creates, starts and deletes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OciHandler {
    /// Name of the handler, as a RuntimeClass names it.
    pub name: String,
    /// Absolute path of the program.
    pub binary: PathBuf,
    /// Global options of the program, before its command.
    pub arguments: Vec<String>,
    /// Directory of its state (`--root`). `None`: `runtime/<name>` in the state directory.
    pub root: Option<PathBuf>,
    /// Environment of its commands in addition to `PATH`, as `NAME=value`.
    pub environment: Vec<String>,
    /// Time limit of one command.
    pub timeout: Duration,
    /// Annotations of pods and containers that the runtime gets: whole names, or prefixes that end with `*`.
    pub allowed_annotations: Vec<String>,
}
