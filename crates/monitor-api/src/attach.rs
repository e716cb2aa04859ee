use oci::NamespaceType;
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};

/// Purpose of an attached descriptor.
///
/// The roles of an [`Envelope`](crate::Envelope) are in the order of its descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A detached mount that becomes the root of the container.
    Rootfs,
    /// A detached mount for entry N of the spec's `mounts`.
    Mount(u32),
    /// A namespace to join instead of the namespace of that type in the spec.
    Namespace(NamespaceType),
    /// Standard input of the container or exec'd process; `/dev/null` if it is not attached.
    Stdin,
    /// Standard output of the container: a FIFO opened read-write, so that it outlives every reader.
    Stdout,
    /// Standard error of the container.
    Stderr,
    /// The write end of the container's standard input, kept open so that the container gets no end of file when the
    /// daemon dies.
    StdinHold,
    /// The monitor's end of standard output, non-blocking.
    StdoutRead,
    /// The monitor's end of standard error, non-blocking.
    StderrRead,
    /// The log file of the container, opened for appending.
    Log,
    /// A memfd with a compiled seccomp program (an array of `struct sock_filter`).
    Seccomp,
    /// A pidfd of the container's init, the pod init or the exec'd process.
    Pidfd,
    /// The start gate of a created container: the container waits while any process holds it open.
    Sync,
    /// The master side of a terminal.
    Terminal,
    /// The bundle directory of a container of an OCI runtime, which writes the pid of the container there.
    Bundle,
    /// A listening Unix socket on which an OCI runtime sends the master side of the container's terminal.
    ConsoleSocket,
    /// A program that replaces the running monitor.
    Program,
    /// A program that is executed in place of the container's, see `Create::interpreter`. Contract 1.8.
    Interpreter,
    /// A file that the interpreter inherits. Contract 1.8.
    Code,
    /// A descriptor that the monitor keeps open under a key (see `Request::Keep`). The number orders the descriptors of
    /// a key.
    Kept(u32),
}

impl Role {
    /// The directory of a container's log, opened with `O_PATH`: a log that reaches its maximum size is replaced there. A
    /// peer before contract 1.7 knows this role, and either ignores it or hands it to the next monitor.
    pub const LOG_DIRECTORY: Self = Self::Kept(0);
}

/// Descriptors of one message, each with its role.
#[derive(Debug, Default)]
pub struct Attachments(Vec<(Role, OwnedFd)>);

impl Attachments {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one descriptor.
    pub fn push(&mut self, role: Role, fd: OwnedFd) {
        self.0.push((role, fd));
    }

    /// Adds one descriptor and returns the list, for chaining.
    #[must_use]
    pub fn with(mut self, role: Role, fd: OwnedFd) -> Self {
        self.push(role, fd);
        self
    }

    /// Removes the first descriptor of this role and returns it.
    pub fn take(&mut self, role: Role) -> Option<OwnedFd> {
        let at = self.0.iter().position(|(r, _)| *r == role)?;
        Some(self.0.remove(at).1)
    }

    /// Iterates over all descriptors in order.
    pub fn iter(&self) -> impl Iterator<Item = &(Role, OwnedFd)> {
        self.0.iter()
    }

    /// Returns the roles in order.
    pub fn roles(&self) -> Vec<Role> {
        self.0.iter().map(|(role, _)| *role).collect()
    }

    /// Number of descriptors.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no descriptor is attached.
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
