use std::{collections::BTreeMap, path::PathBuf};

use rustix::fd::OwnedFd;

/// The container's root file system.
#[derive(Debug)]
pub enum Rootfs {
    /// A detached mount (fsmount, or open_tree with `OPEN_TREE_CLONE`), possibly made in another mount namespace.
    Mount(OwnedFd),
    /// An absolute path of a directory, as the calling process sees it.
    Path(PathBuf),
}

/// The process's stdio descriptors, and further ones that it inherits.
///
/// `None` for one of the three: the container's `/dev/null`. The three are ignored where the process has a terminal.
#[derive(Debug, Default)]
pub struct Stdio {
    /// Becomes descriptor 0.
    pub stdin: Option<OwnedFd>,
    /// Becomes descriptor 1.
    pub stdout: Option<OwnedFd>,
    /// Becomes descriptor 2.
    pub stderr: Option<OwnedFd>,
    /// Uses descriptors 0, 1 and 2 of the calling process, which must be open, in place of the three above.
    pub inherit: bool,
    /// Leaves line ends of a process with a terminal as they are written and does not turn them into `\r\n` (ONLCR,
    /// termios(3)); for output that is copied to a pipe or a file.
    pub raw_newlines: bool,
    /// Number of descriptors of the calling process, from 3 on, that the process inherits. They must be open, and stay
    /// open over execve.
    pub preserve_fds: u32,
}

/// Inputs of a container in addition to its spec.
#[derive(Debug)]
pub struct Inputs {
    /// The root file system; `spec.root.path` is ignored.
    pub rootfs: Rootfs,
    /// Detached mounts for entries of `spec.mounts`, by index. Such an entry must be a bind mount; its source is
    /// ignored.
    pub mounts: BTreeMap<u32, OwnedFd>,
    /// Namespaces to join; these take precedence over the spec's entries.
    pub namespaces: BTreeMap<oci::NamespaceType, OwnedFd>,
    /// Stdio descriptors.
    pub stdio: Stdio,
    /// A compiled seccomp program that replaces `linux.seccomp`.
    pub seccomp: Option<seccomp::Program>,
    /// The program that runs the command of the process; `None`: the command is a program itself.
    pub interpreter: Option<crate::Interpreter>,
    /// Options that an OCI command line sets; the default for a monitor.
    pub invocation: Invocation,
}

/// Options of one invocation of the runtime.
#[derive(Debug, Default)]
pub struct Invocation {
    /// The container's state for hooks and seccomp agents; status and pid are filled in.
    pub state: oci::State,
    /// A listening `SOCK_SEQPACKET` socket over which another process starts the container (see
    /// [`start_created`](crate::start_created)), once [`ContainerSetup::detach`](crate::ContainerSetup::detach) was
    /// called.
    pub start_listener: Option<OwnedFd>,
    /// `linux.cgroupsPath` is `slice:prefix:name`, and systemd makes the cgroup.
    pub systemd_cgroup: bool,
    /// The container stays in the caller's cgroups; `linux.cgroupsPath` and `linux.resources` are ignored.
    pub no_cgroup: bool,
    /// The process keeps the caller's supplementary groups in place of `process.user.additionalGids`: for a caller
    /// whose groups cannot be mapped, and whose containers may have the access that these groups give.
    pub keep_groups: bool,
    /// A mount namespace with very few mounts ([`staging`](crate::staging)). The container's is a copy of it and not of
    /// the caller's, which may have thousands. Ignored with a new user namespace, and with hooks that must see the
    /// host's files in the container's namespace.
    pub staging: Option<OwnedFd>,
    /// Limits on the cgroups that the container may make below its own; `None`: no limits.
    pub nesting: Option<cgroup::Nesting>,
    /// The host's mount namespace, where the caller's is another one. The container's is a copy of it if hooks must see
    /// the host's files there. A root without a path is then attached at `rootfs` in `state.bundle`, which must exist.
    pub host_mount_namespace: Option<OwnedFd>,
    /// Output files of the hooks in the container's namespaces.
    pub hook_output: crate::hooks::Output,
}
