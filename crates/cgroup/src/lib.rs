//! cgroup v1, v2 and hybrid trees: create, join without waiting, limit, freeze, kill, measure.
//! (contract stub: signatures are agreed, bodies and file layout are the owner's)
#![allow(missing_docs, unused_variables, dead_code)]
use std::collections::BTreeMap;
use rustix::fd::{BorrowedFd, OwnedFd};

/// The mounted trees, held by directory descriptors, so that they work from any mount namespace.
pub struct Hierarchies { /* v1 controllers → OwnedFd, v2: Option<OwnedFd> */ }

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout { V1, Hybrid, V2 }

/// `/parent/…/name`: absolute, normalized, no `..`, bounded; the same in every tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupPath(String);

/// Resources of the spec, validated and converted.
#[derive(Clone, Debug, Default)]
pub struct Limits {}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Hierarchies {
    /// Finds and opens what is mounted (reads /proc/self/mountinfo).
    pub fn open() -> Result<Self, Error> { todo!() }
    pub fn layout(&self) -> Layout { todo!() }
}
impl GroupPath {
    pub fn parse(path: &str) -> Result<Self, Error> { todo!() }
    pub fn join(&self, name: &str) -> Result<Self, Error> { todo!() }
    pub fn as_str(&self) -> &str { &self.0 }
}
impl Limits {
    pub fn from_spec(resources: &oci::Resources) -> Result<Self, Error> { todo!() }
}

/// A group that exists in every tree.
pub struct Group {}
impl Group {
    /// mkdir in every hierarchy (parents too, remembering which were new), limits written. Undoes itself on failure.
    /// An existing group that has processes or children is an error.
    pub fn create(trees: &Hierarchies, path: &GroupPath, limits: &Limits) -> Result<Self, Error> { todo!() }
    /// An existing group (after a restart, or for stats).
    pub fn open(trees: &Hierarchies, path: &GroupPath) -> Result<Self, Error> { todo!() }
    /// What a child needs to join without ever waiting for RCU: descriptors of v1 `tasks` files, memory last, which the
    /// child writes "0" into, and the v2 directory for `clone3(CLONE_INTO_CGROUP)`.
    pub fn joiner(&self) -> Result<Joiner, Error> { todo!() }
    /// A child group for one exec'ed command (v2 tree only where v1 has the controllers: cheap, gives `cgroup.kill`).
    pub fn exec_group(&self, name: &str) -> Result<Group, Error> { todo!() }
    pub fn update(&self, limits: &Limits) -> Result<(), Error> { todo!() }
    /// SIGKILL to every process (cgroup.kill, else freeze + signal loop).
    pub fn kill(&self) -> Result<(), Error> { todo!() }
    pub fn signal(&self, signal: i32) -> Result<(), Error> { todo!() }
    pub fn freeze(&self) -> Result<(), Error> { todo!() }
    pub fn thaw(&self) -> Result<(), Error> { todo!() }
    pub fn pids(&self) -> Result<Vec<i32>, Error> { todo!() }
    /// OOM kills so far in this group.
    pub fn oom_kills(&self) -> u64 { todo!() }
    /// rmdir children and self in every tree; a group that is not there is fine. Retries EBUSY briefly after a kill.
    pub fn remove(self) -> Result<(), Error> { todo!() }
    /// One read of the kept descriptors.
    pub fn stats(&self) -> Result<Stats, Error> { todo!() }
}
/// See [`Group::joiner`].
pub struct Joiner { pub v2: Option<OwnedFd>, /* tasks: Vec<OwnedFd>, memory last */ }
impl Joiner {
    pub fn v2_dir(&self) -> Option<BorrowedFd<'_>> { todo!() }
    /// In the child, everything but memory.
    pub fn join_early(&self) -> Result<(), Error> { todo!() }
    /// In the child, just before execve: memory.
    pub fn join_memory(&self) -> Result<(), Error> { todo!() }
}
#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub cpu_usage_ns: u64, pub cpu_user_ns: u64, pub cpu_system_ns: u64,
    pub cpu_periods: u64, pub cpu_throttled_periods: u64, pub cpu_throttled_ns: u64,
    pub memory_usage: u64, pub memory_working_set: u64, pub memory_rss: u64, pub memory_limit: Option<u64>,
    pub page_faults: u64, pub major_page_faults: u64, pub swap_usage: Option<u64>, pub swap_limit: Option<u64>,
    pub pids: u64, pub pids_limit: Option<u64>,
    pub io_read_bytes: u64, pub io_write_bytes: u64,
    pub extra: BTreeMap<String, u64>,
}
