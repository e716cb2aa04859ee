//! What the monitor says for people goes to standard error, which the daemon made a file of.

use rustix::fs::{FileType, fstat, ftruncate};

/// Longest that file may be.
const MOST: i64 = 1024 * 1024;

/// Starts the file anew when it is too long: it lives as long as the node, and nobody rotates it.
pub(crate) fn bound() {
    let stderr = rustix::stdio::stderr();
    if let Ok(stat) = fstat(stderr)
        && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_size > MOST
    {
        let _ = ftruncate(stderr, 0);
    }
}
