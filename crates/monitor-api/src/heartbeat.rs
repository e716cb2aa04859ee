//! What a monitor that lives answers to `Ping`: contract 1.3.

use serde::{Deserialize, Serialize};

/// To `Ping`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// Log writers that wait for their file system; empty when all of them make progress.
    #[serde(default)]
    pub stuck: Vec<StuckWriter>,
}

/// A log writer whose last write, or wait for its predecessor's, does not return.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckWriter {
    /// The file system that its logs are on; `None`: it writes no log, only to attached clients.
    pub device: Option<LogDevice>,
    /// How long it has waited, milliseconds.
    pub since_ms: u64,
    /// Containers whose output it moves; they block once their pipes are full.
    pub containers: u32,
    /// Its process in the initial PID namespace.
    pub pid: u32,
}

/// Device number of a file system, as in `/proc/self/mountinfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogDevice {
    /// Major number; 0 for file systems without a block device (NFS, overlay, tmpfs, btrfs).
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}
