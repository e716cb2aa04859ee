//! Checkpoints by CRIU, which is asked over its RPC: `criu swrk` reads a request from a socket and answers there.
//!
//! ```text
//! options.rs       what the command line says, common to checkpoint and restore
//! outside.rs       what of a container is not its own: bind mounts, masks, joined namespaces, pipes
//! request.rs       a request, in the words of CRIU's rpc.proto
//! service.rs       CRIU as a child, and the conversation with it
//! wire.rs          protocol buffers, as far as these few messages need them
//! ```
//!
//! The keys under which things of outside are written into an image are those that runc uses, so that an image of one
//! can be restored by the other.

pub(crate) mod options;
pub(crate) mod outside;
pub(crate) mod request;
pub(crate) mod service;
mod wire;

use std::path::Path;

use crate::failure::Failure;

/// Beside CRIU's own files: what 0, 1 and 2 of the container's init were.
pub(crate) const DESCRIPTORS: &str = "descriptors.json";

/// What CRIU said went wrong, from its log.
pub(crate) fn explained(failure: Failure, log: &Path) -> Failure {
    const LINES: usize = 3;
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // That a program which it ran ended says nothing beside why.
    let tells = |line: &&str| line.contains("Error") && !line.contains(": exited, status=");
    let errors: Vec<&str> = text.lines().filter(tells).map(str::trim).collect();
    let last = errors[errors.len().saturating_sub(LINES)..].join("; ");
    if last.is_empty() {
        return failure;
    }
    Failure { message: format!("{}: {last} (more in {})", failure.message, log.display()), ..failure }
}
