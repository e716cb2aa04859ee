use std::{collections::BTreeMap, path::PathBuf};

use rustix::fd::OwnedFd;

/// Where the root comes from.
#[derive(Debug)]
pub enum Rootfs {
    /// A detached mount (fsmount, or open_tree with `OPEN_TREE_CLONE`), possibly made in another mount namespace.
    Mount(OwnedFd),
    /// A folder, absolute, as the calling process sees it.
    Path(PathBuf),
}

/// Descriptors for the process's 0, 1, 2; `None`: the container's `/dev/null`; ignored where the process has a terminal.
#[derive(Debug, Default)]
pub struct Stdio {
    /// Becomes 0.
    pub stdin: Option<OwnedFd>,
    /// Becomes 1.
    pub stdout: Option<OwnedFd>,
    /// Becomes 2.
    pub stderr: Option<OwnedFd>,
}

/// Everything beside the spec.
#[derive(Debug)]
pub struct Inputs {
    /// The root; `spec.root.path` is not looked at.
    pub rootfs: Rootfs,
    /// Detached mounts for entries of `spec.mounts`, by index; such an entry must be a bind mount, its source is not looked
    /// at.
    pub mounts: BTreeMap<u32, OwnedFd>,
    /// Namespaces to join, in place of the spec's entries.
    pub namespaces: BTreeMap<oci::NamespaceType, OwnedFd>,
    /// Standard descriptors.
    pub stdio: Stdio,
    /// Replaces `linux.seccomp`.
    pub seccomp: Option<seccomp::Program>,
}
