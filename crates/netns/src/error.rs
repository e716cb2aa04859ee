//! Errors of namespace operations.

use std::{io, path::Path};

use crate::NsId;

/// Category of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The name or the sysctl is invalid; the caller must change it.
    Invalid,
    /// The name is already pinned.
    AlreadyExists,
    /// No pin has this name.
    NotFound,
    /// The namespace does not exist anymore.
    Gone,
    /// Too little memory is left.
    Memory,
    /// A system call failed, or a bug.
    System,
}

/// An error with the operation, its object and the cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{operation} {object}: {cause}")]
    Kernel {
        /// Operation that failed: `pin`, `open`, `enter`.
        operation: &'static str,
        /// Object of the operation: a path or a kind of namespace.
        object: String,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The name cannot be used for a pin.
    #[error("namespace name {0:?} is not valid: 1 to 200 of A-Z a-z 0-9 . _ - not starting with a dot")]
    Name(String),
    /// The name is already pinned.
    #[error("namespace {0} is already pinned")]
    Exists(String),
    /// No pin has this name.
    #[error("namespace {0} is not pinned")]
    NotFound(String),
    /// The sysctl does not belong to a namespace that the pod has of its own.
    #[error("sysctl {key}: {reason}")]
    Sysctl {
        /// Key as the caller passed it.
        key: String,
        /// Reason why it is refused.
        reason: String,
    },
    /// The namespace of a weak reference does not exist anymore.
    #[error("network namespace {0} is gone")]
    Gone(NsId),
    /// The calling thread cannot be switched.
    #[error("switch the thread to a network namespace: {0}")]
    Poisoned(&'static str),
    /// Too little memory is left for another namespace.
    #[error("create network namespace: only {available} bytes of memory are available and {reserve} are reserved")]
    Memory {
        /// Memory that was available, in bytes.
        available: u64,
        /// Memory that is to stay available, in bytes.
        reserve: u64,
    },
    /// A closure that ran inside a namespace panicked.
    #[error("a closure in a namespace panicked: {0}")]
    Panicked(String),
}

impl Error {
    /// Returns the category.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Name(_) | Self::Sysctl { .. } => ErrorKind::Invalid,
            Self::Exists(_) => ErrorKind::AlreadyExists,
            Self::NotFound(_) => ErrorKind::NotFound,
            Self::Gone(_) => ErrorKind::Gone,
            Self::Memory { .. } => ErrorKind::Memory,
            Self::Kernel { .. } | Self::Panicked(_) | Self::Poisoned(_) => ErrorKind::System,
        }
    }

    /// Returns the operation that failed; `None` if nothing was tried.
    pub fn operation(&self) -> Option<&'static str> {
        match self {
            Self::Kernel { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// Returns the path, kind or name of the namespace, or the sysctl, that the error is about.
    pub fn object(&self) -> Option<&str> {
        match self {
            Self::Kernel { object, .. } => Some(object),
            Self::Name(name) | Self::Exists(name) | Self::NotFound(name) => Some(name),
            Self::Sysctl { key, .. } => Some(key),
            Self::Gone(_) | Self::Poisoned(_) | Self::Memory { .. } | Self::Panicked(_) => None,
        }
    }

    /// Returns the error number of the system call that failed.
    pub(crate) fn errno(&self) -> Option<rustix::io::Errno> {
        match self {
            Self::Kernel { cause, .. } => rustix::io::Errno::from_io_error(cause),
            _ => None,
        }
    }

    pub(crate) fn kernel(operation: &'static str, object: impl Into<String>, cause: impl Into<io::Error>) -> Self {
        Self::Kernel { operation, object: object.into(), cause: cause.into() }
    }

    pub(crate) fn path(operation: &'static str, path: &Path, cause: impl Into<io::Error>) -> Self {
        Self::kernel(operation, path.display().to_string(), cause)
    }
}
