use std::io;

use rustix::io::Errno;

/// Category of an error, by what a caller can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The spec, the path or the signal is invalid; the caller must change it.
    Invalid,
    /// The group does not exist.
    NotFound,
    /// The group is in use.
    InUse,
    /// This machine or the caller's privileges do not allow it.
    Unavailable,
    /// The operation did not complete in time.
    Timeout,
    /// The kernel or systemd failed.
    System,
}

/// An error of an operation on a group.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No cgroup file system is mounted.
    #[error("no cgroup file system is mounted; mount cgroup2 on /sys/fs/cgroup")]
    NoTree,
    /// The path of a group is invalid.
    #[error("cgroup path {path:?}: {reason}")]
    Path {
        /// The path, truncated.
        path: String,
        /// Why it is invalid.
        reason: &'static str,
    },
    /// A value of the spec is invalid on every kernel.
    #[error("linux.resources.{field}: {reason}")]
    Invalid {
        /// The field of `linux.resources`.
        field: String,
        /// Why it is invalid.
        reason: String,
    },
    /// A limit needs a controller that this machine (or an ancestor of the group) does not provide.
    #[error("cgroup {path}: {field} needs the {controller} controller: {reason}")]
    Unavailable {
        /// The path of the group.
        path: String,
        /// The field that was requested.
        field: String,
        /// The name of the controller.
        controller: &'static str,
        /// Why it is not available, and what to do.
        reason: String,
    },
    /// The group exists and is in use.
    #[error("cgroup {path} is in use: {by}; stop that process or remove that cgroup, or choose another cgroupsPath")]
    Occupied {
        /// The path of the group.
        path: String,
        /// A process (by pid) or a child group in it.
        by: String,
    },
    /// The container has no cgroup, because this user may not create one.
    #[error(
        "the container has no cgroup {path}: no cgroup is delegated to this user, or --cgroup-manager is disabled; run it in a delegated cgroup (systemd-run --user --scope -p Delegate=yes …), or with the systemd driver"
    )]
    NoGroup {
        /// The path of the group that was requested.
        path: String,
    },
    /// An annotation for systemd is invalid.
    #[error("annotations.{key}: {reason}")]
    Annotation {
        /// The key of the annotation.
        key: String,
        /// Why it is invalid.
        reason: String,
    },
    /// A request to systemd failed.
    #[error("{operation} the systemd unit {unit}: {reason}")]
    Systemd {
        /// `start`, `update` or `stop`.
        operation: &'static str,
        /// The name of the unit.
        unit: String,
        /// The message of systemd, or why it cannot be reached.
        reason: String,
    },
    /// The group does not exist.
    #[error("cgroup {path} does not exist in the {tree} hierarchy")]
    Missing {
        /// The path of the group.
        path: String,
        /// The name of the tree.
        tree: String,
    },
    /// An operation did not complete in time.
    #[error("{operation} cgroup {path}: timed out after {seconds} s; {detail}")]
    Timeout {
        /// The operation.
        operation: &'static str,
        /// The path of the group.
        path: String,
        /// The timeout.
        seconds: u64,
        /// What prevented the completion.
        detail: String,
    },
    /// A system call failed.
    #[error("{operation} {object}: {source}")]
    Io {
        /// The operation with its value: `write "max" to`.
        operation: String,
        /// The object: tree, group and file.
        object: String,
        /// The cause.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(operation: impl Into<String>, object: impl Into<String>, errno: Errno) -> Self {
        Self::Io { operation: operation.into(), object: object.into(), source: errno.into() }
    }

    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }

    /// Returns the category.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Path { .. } | Self::Invalid { .. } | Self::Annotation { .. } => ErrorKind::Invalid,
            Self::Missing { .. } => ErrorKind::NotFound,
            Self::Occupied { .. } => ErrorKind::InUse,
            Self::NoTree | Self::Unavailable { .. } | Self::NoGroup { .. } => ErrorKind::Unavailable,
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::Systemd { .. } | Self::Io { .. } => ErrorKind::System,
        }
    }

    /// Returns the operation that failed; `None` if nothing was tried.
    pub fn operation(&self) -> Option<&str> {
        match self {
            Self::Systemd { operation, .. } | Self::Timeout { operation, .. } => Some(operation),
            Self::Io { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// Returns the group, file, unit, field or annotation that the error is about.
    pub fn object(&self) -> Option<&str> {
        match self {
            Self::NoTree => None,
            Self::Path { path, .. }
            | Self::Unavailable { path, .. }
            | Self::Occupied { path, .. }
            | Self::NoGroup { path }
            | Self::Missing { path, .. }
            | Self::Timeout { path, .. } => Some(path),
            Self::Invalid { field, .. } => Some(field),
            Self::Annotation { key, .. } => Some(key),
            Self::Systemd { unit, .. } => Some(unit),
            Self::Io { object, .. } => Some(object),
        }
    }

    /// Returns the errno of a failed system call.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Io { source, .. } => Errno::from_io_error(source),
            _ => None,
        }
    }
}
