use std::io;

use rustix::io::Errno;

/// Why an operation on a group failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No cgroup file system is mounted.
    #[error("no cgroup file system is mounted; mount cgroup2 on /sys/fs/cgroup")]
    NoTree,
    /// The path of a group is not acceptable.
    #[error("cgroup path {path:?}: {reason}")]
    Path {
        /// As given (cut to a bounded length).
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A value of the spec cannot be applied to any kernel.
    #[error("linux.resources.{field}: {reason}")]
    Invalid {
        /// Field of `linux.resources`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A limit needs a controller that this machine (or an ancestor of the group) does not offer.
    #[error("cgroup {path}: {field} needs the {controller} controller: {reason}")]
    Unavailable {
        /// The group.
        path: String,
        /// What was asked for.
        field: String,
        /// Which controller.
        controller: &'static str,
        /// Why it is not there, and the way out.
        reason: String,
    },
    /// The group exists and is in use.
    #[error("cgroup {path} is in use: {by}; end it, or choose another cgroupsPath")]
    Occupied {
        /// The group.
        path: String,
        /// A process (by pid) or child group of it.
        by: String,
    },
    /// The container has no group of its own, because this user may not make one.
    #[error(
        "the container has no cgroup of its own ({path}): none was delegated to this user, or --cgroup-manager was disabled; run it in a delegated one (systemd-run --user --scope -p Delegate=yes …), or with the systemd driver"
    )]
    NoGroup {
        /// The group that was asked for.
        path: String,
    },
    /// An annotation for systemd is not acceptable.
    #[error("annotations.{key}: {reason}")]
    Annotation {
        /// The annotation.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// systemd did not do what it was asked for.
    #[error("{operation} the systemd unit {unit}: {reason}")]
    Systemd {
        /// `start`, `update` or `stop`.
        operation: &'static str,
        /// The unit.
        unit: String,
        /// systemd's words, or why it cannot be reached.
        reason: String,
    },
    /// The group does not exist.
    #[error("cgroup {path} does not exist in the {tree} tree")]
    Missing {
        /// The group.
        path: String,
        /// Name of the tree.
        tree: String,
    },
    /// What was asked for did not happen in time.
    #[error("{operation} cgroup {path}: not done after {seconds} s; {detail}")]
    Late {
        /// What was tried.
        operation: &'static str,
        /// The group.
        path: String,
        /// How long was waited.
        seconds: u64,
        /// What was still in the way.
        detail: String,
    },
    /// The kernel refused.
    #[error("{operation} {object}: {source}")]
    Io {
        /// What was tried, with its value: `write "max" to`.
        operation: String,
        /// On what: tree, group and file.
        object: String,
        /// Why it failed.
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

    /// The kernel's errno, where it was the kernel that refused.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Io { source, .. } => Errno::from_io_error(source),
            _ => None,
        }
    }
}
