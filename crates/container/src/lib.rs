//! An OCI spec and descriptors in, a process out. (contract stub)
#![allow(missing_docs, unused_variables, dead_code)]
use std::collections::BTreeMap;
use rustix::fd::{BorrowedFd, OwnedFd};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind { Invalid, Command, System }
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error { pub kind: ErrorKind, pub message: String }

/// Where the root comes from.
pub enum Rootfs { /// A detached mount.
    Mount(OwnedFd), /// A folder, absolute.
    Path(std::path::PathBuf) }
/// Descriptors for the process's 0, 1, 2; `None`: /dev/null; ignored where the process has a terminal.
#[derive(Default)]
pub struct Stdio { pub stdin: Option<OwnedFd>, pub stdout: Option<OwnedFd>, pub stderr: Option<OwnedFd> }
/// Everything beside the spec.
pub struct Inputs {
    pub rootfs: Rootfs,
    /// Detached mounts for entries of `spec.mounts`, by index.
    pub mounts: BTreeMap<u32, OwnedFd>,
    /// Namespaces to join, in place of the spec's entries.
    pub namespaces: BTreeMap<oci::NamespaceType, OwnedFd>,
    pub stdio: Stdio,
    /// Replaces `linux.seccomp`.
    pub seccomp: Option<seccomp::Program>,
}
/// A spec that was checked whole: what `create` will do, in kernel words. Parsed once; no Option soup below it.
pub struct Plan {}
impl Plan {
    /// Checks the spec against itself, the inputs and what this process may do (clamps capabilities, oom_score_adj and
    /// rlimits to what this host grants, with a warning each).
    pub fn new(spec: &oci::Spec, inputs: Inputs) -> Result<Self, Error> { todo!() }
    pub fn warnings(&self) -> &[String] { todo!() }
}
/// A cloned child that sets itself up, then waits before execve.
pub struct Nascent { pub pid: i32, pub pidfd: OwnedFd, pub group: cgroup::Group }
#[derive(Debug)]
pub enum Progress { /// Nothing new.
    Pending, /// Set up; waits for `start`.
    Ready { terminal: Option<OwnedFd> }, /// execve succeeded.
    Executed, }
/// Makes the cgroup and clones the child; returns at once. The caller must be single-threaded.
pub fn create(trees: &cgroup::Hierarchies, plan: Plan) -> Result<Nascent, Error> { todo!() }
impl Nascent {
    /// Readable when `advance` has something to say (epoll it). Holding a duplicate keeps the child waiting.
    pub fn sync(&self) -> BorrowedFd<'_> { todo!() }
    /// Reads what the child says; never blocks. A failed set-up or execve is an Err that names the step.
    pub fn advance(&mut self) -> Result<Progress, Error> { todo!() }
    /// Lets the child execve.
    pub fn start(&mut self) -> Result<(), Error> { todo!() }
    /// Takes over a waiting child of a process that died (`sync` from its descriptor).
    pub fn adopt(pid: i32, pidfd: OwnedFd, sync: OwnedFd, group: cgroup::Group) -> Self { todo!() }
}
/// A command in a running container: one fork. `group` is the group to be born in, made by `Group::exec_group` of the
/// container's; `init` is the pidfd of the container's init. The caller must be single-threaded: its pid_for_children is
/// switched around the clone. Returns at once; `advance` tells `Ready` (with the terminal), then of execve: there is no
/// `start`.
pub fn exec(group: cgroup::Group, init: BorrowedFd<'_>, process: &oci::Process, stdio: Stdio, seccomp: Option<&seccomp::Program>) -> Result<Nascent, Error> { todo!() }
