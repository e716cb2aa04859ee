//! Reply to `Ping`, since contract 1.3.

use serde::{Deserialize, Serialize};

/// Reply to `Ping`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pong {
    /// Log writers that wait for their file system. Empty while all of them make progress.
    #[serde(default)]
    pub stuck: Vec<StuckWriter>,
}

/// A log writer whose last write, or whose wait for the last write of its predecessor, does not return.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckWriter {
    /// File system of its logs. `None`: it writes no log and serves only attached clients.
    pub device: Option<LogDevice>,
    /// Time that it has waited, in milliseconds.
    pub since_ms: u64,
    /// Number of containers whose output it writes. They block once their pipes are full.
    pub containers: u32,
    /// Pid of the log writer in the initial PID namespace.
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
