use oci::NamespaceType;
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};

/// What an attached descriptor is for. The order of roles in an [`Envelope`](crate::Envelope) is the order of
/// descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A detached mount that becomes the container's root.
    Rootfs,
    /// A detached mount for entry N of the spec's `mounts`.
    Mount(u32),
    /// A namespace to join, in place of the spec's namespace of that kind.
    Namespace(NamespaceType),
    /// The container's or the command's end of standard input (absent: `/dev/null`).
    Stdin,
    /// The container's end of standard output: a FIFO opened read-write, so that it outlives every reader.
    Stdout,
    /// The container's end of standard error.
    Stderr,
    /// The write end of the container's standard input, kept open so that a dead daemon is no end of file.
    StdinHold,
    /// The monitor's end of standard output, non-blocking.
    StdoutRead,
    /// The monitor's end of standard error, non-blocking.
    StderrRead,
    /// The container's log file, opened for appending.
    Log,
    /// A memfd with a compiled seccomp program (an array of `struct sock_filter`).
    Seccomp,
    /// A pidfd.
    Pidfd,
    /// The start gate of a created container: while any process holds it, the container waits.
    Sync,
    /// A terminal's master side.
    Terminal,
    /// A program that shall take over from the monitor that runs.
    Program,
    /// Anything the monitor shall keep open under a key (see `Request::Keep`); N orders them.
    Kept(u32),
}

/// Descriptors with their roles.
#[derive(Debug, Default)]
pub struct Attachments(Vec<(Role, OwnedFd)>);

impl Attachments {
    /// No descriptors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one descriptor.
    pub fn push(&mut self, role: Role, fd: OwnedFd) {
        self.0.push((role, fd));
    }

    /// Adds one descriptor, for chaining.
    #[must_use]
    pub fn with(mut self, role: Role, fd: OwnedFd) -> Self {
        self.push(role, fd);
        self
    }

    /// Takes the first descriptor of this role out.
    pub fn take(&mut self, role: Role) -> Option<OwnedFd> {
        let at = self.0.iter().position(|(r, _)| *r == role)?;
        Some(self.0.remove(at).1)
    }

    /// All that is attached, in order.
    pub fn iter(&self) -> impl Iterator<Item = &(Role, OwnedFd)> {
        self.0.iter()
    }

    /// The roles, in order.
    pub fn roles(&self) -> Vec<Role> {
        self.0.iter().map(|(role, _)| *role).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl IntoIterator for Attachments {
    type Item = (Role, OwnedFd);
    type IntoIter = std::vec::IntoIter<(Role, OwnedFd)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
