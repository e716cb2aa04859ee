//! What can go wrong with a namespace.

use std::{io, path::Path};

/// An operation, its object and the cause, in one sentence.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error("{operation} {object}: {cause}")]
    Kernel {
        /// What was tried: `pin`, `open`, `enter`.
        operation: &'static str,
        /// On what: a path or a kind of namespace.
        object: String,
        /// What the kernel said.
        cause: io::Error,
    },
    /// A name that cannot be a pin's.
    #[error("namespace name {0:?} is not valid: 1 to 200 of A-Z a-z 0-9 . _ - and no dot at its head")]
    Name(String),
    /// The name is pinned already.
    #[error("namespace {0} is pinned already")]
    Exists(String),
    /// No pin has this name.
    #[error("namespace {0} is not pinned")]
    NotFound(String),
    /// A sysctl that does not belong to a namespace the pod has.
    #[error("sysctl {key}: {reason}")]
    Sysctl {
        /// As it was asked for.
        key: String,
        /// Why not.
        reason: String,
    },
    /// A closure that ran inside a namespace panicked.
    #[error("work inside a namespace panicked: {0}")]
    Panicked(String),
}

impl Error {
    pub(crate) fn kernel(operation: &'static str, object: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self::Kernel { operation, object: object.into(), cause: cause.into() }
    }

    pub(crate) fn path(operation: &'static str, path: &Path, cause: impl Into<io::Error>) -> Self {
        Self::kernel(operation, path.display().to_string(), cause)
    }
}
