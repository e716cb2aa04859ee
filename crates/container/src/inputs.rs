use std::{collections::BTreeMap, path::PathBuf};

use rustix::fd::OwnedFd;

/// Where the root comes from.
#[derive(Debug)]
pub enum Rootfs {
    /// A detached mount (fsmount, or open_tree with `OPEN_TREE_CLONE`), possibly made in another mount namespace.
    Mount(OwnedFd),
    /// A directory, absolute, as the calling process sees it.
    Path(PathBuf),
}

/// The process's descriptors.
///
/// 0, 1 and 2 by name; `None`: the container's `/dev/null`; ignored where the process has a terminal.
#[derive(Debug, Default)]
pub struct Stdio {
    /// Becomes 0.
    pub stdin: Option<OwnedFd>,
    /// Becomes 1.
    pub stdout: Option<OwnedFd>,
    /// Becomes 2.
    pub stderr: Option<OwnedFd>,
    /// In place of the three above: 0, 1 and 2 of the calling process, which must be open.
    pub own: bool,
    /// Of a process with a terminal: line ends are not turned into `\r\n` (ONLCR, termios(3)), as for output that
    /// continues to a pipe or a file.
    pub plain_line_ends: bool,
    /// As many descriptors of the calling process from 3 on are the process's too. They must be open, and stay so over
    /// execve.
    pub preserve: u32,
}

/// Everything beside the spec.
#[derive(Debug)]
pub struct Inputs {
    /// The root; `spec.root.path` is not looked at.
    pub rootfs: Rootfs,
    /// Detached mounts for entries of `spec.mounts`, by index; such an entry must be a bind mount, its source is not
    /// looked at.
    pub mounts: BTreeMap<u32, OwnedFd>,
    /// Namespaces to join, in place of the spec's entries.
    pub namespaces: BTreeMap<oci::NamespaceType, OwnedFd>,
    /// Standard descriptors.
    pub stdio: Stdio,
    /// Replaces `linux.seccomp`.
    pub seccomp: Option<seccomp::Program>,
    /// What a command line decides; a default one for a monitor.
    pub invocation: Invocation,
}

/// How the runtime was called.
#[derive(Debug, Default)]
pub struct Invocation {
    /// The container as hooks and seccomp agents are told of it; status and pid are filled in.
    pub state: oci::State,
    /// A listening `SOCK_SEQPACKET` socket over which another process starts the container (see
    /// [`start_waiting`](crate::start_waiting)), once [`Nascent::leave`](crate::Nascent::leave) was called.
    pub starter: Option<OwnedFd>,
    /// `linux.cgroupsPath` is `slice:prefix:name`, and systemd makes the group.
    pub systemd_cgroup: bool,
    /// The container stays in the caller's groups: `linux.cgroupsPath` and `linux.resources` are not looked at.
    pub no_cgroup: bool,
    /// The process keeps the caller's supplementary groups, in place of `process.user.additionalGids`: for a caller
    /// whose groups may not be mapped, and that is trusted with what they open.
    pub keep_groups: bool,
    /// A mount namespace with hardly a mount in it ([`staging`](crate::staging)): the container's is made from a copy
    /// of it and not of the caller's, whose mounts may be thousands. Not with a new user namespace, nor with hooks that
    /// must see the host's files in the container's namespace; there it is ignored.
    pub staging: Option<OwnedFd>,
    /// How many groups the container may make below its own; `None`: as many as it likes.
    pub nesting: Option<cgroup::Nesting>,
    /// The host's mount namespace, where it is not the caller's: the container's is a copy of it where hooks must see
    /// the host's files there. A root without a path is then shown at `rootfs` in `state.bundle`, which must be there.
    pub host_mounts: Option<OwnedFd>,
    /// What the hooks in the container's namespaces write to.
    pub hook_output: crate::hooks::Output,
}
