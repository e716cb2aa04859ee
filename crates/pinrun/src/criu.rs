//! Checkpoint and restore through CRIU's RPC: `criu swrk` reads a request from a socket and responds there.
//!
//! ```text
//! options.rs       command-line options common to checkpoint and restore
//! external.rs      external resources of a container: bind mounts, masked paths, joined namespaces, pipes
//! request.rs       requests and responses of CRIU's rpc.proto
//! service.rs       CRIU as a child process, and the protocol with it
//! wire.rs          the part of protocol buffers that these messages need
//! ```
//!
//! External resources are written to an image under the keys that runc uses, so that either runtime can restore an
//! image of the other.

pub(crate) mod external;
pub(crate) mod options;
pub(crate) mod request;
pub(crate) mod service;
mod wire;

use std::path::Path;

use crate::failure::Failure;

/// A file next to CRIU's image files: the targets of descriptors 0, 1 and 2 of the container's init.
pub(crate) const DESCRIPTORS: &str = "descriptors.json";

/// Appends the last errors of CRIU's log to the message.
pub(crate) fn with_log_errors(failure: Failure, log: &Path) -> Failure {
    const LINES: usize = 3;
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // The exit status of a helper program adds nothing to the error that precedes it.
    let is_cause = |line: &&str| line.contains("Error") && !line.contains(": exited, status=");
    let errors: Vec<&str> = text.lines().filter(is_cause).map(str::trim).collect();
    let last = errors[errors.len().saturating_sub(LINES)..].join("; ");
    if last.is_empty() {
        return failure;
    }
    Failure { message: format!("{}: {last} (more in {})", failure.message, log.display()), ..failure }
}
