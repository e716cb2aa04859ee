//! Many network namespaces in one process: create, pin, identify, enter, pool. (contract stub)
#![allow(missing_docs, unused_variables, dead_code)]
use std::path::{Path, PathBuf};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);
/// Identity that is never reused while the machine runs: nsfs id (NS_GET_ID).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NsId(pub u64);
/// A network namespace held by a descriptor.
pub struct Namespace { fd: OwnedFd }
impl Namespace {
    /// A new one with `lo` up; made on a helper thread, the caller's namespace does not change.
    pub fn create() -> Result<Self, Error> { todo!() }
    pub fn open(path: &Path) -> Result<Self, Error> { todo!() }
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Error> { todo!() }
    pub fn try_clone(&self) -> Result<Self, Error> { todo!() }
    pub fn id(&self) -> Result<NsId, Error> { todo!() }
    /// Runs a closure with this namespace current, on a thread of its own kept for that.
    pub fn enter<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> { todo!() }
}
impl AsFd for Namespace { fn as_fd(&self) -> BorrowedFd<'_> { self.fd.as_fd() } }
impl From<Namespace> for OwnedFd { fn from(n: Namespace) -> OwnedFd { n.fd } }
/// A directory of pins: hidden bind mounts in `store`, published as symlinks in `public` (`/run/netns`) by rename, so
/// that what is visible is ready.
pub struct PinDir {}
impl PinDir {
    pub fn open(store: &Path, public: &Path) -> Result<Self, Error> { todo!() }
    /// Pins and publishes; returns the conventional path.
    pub fn pin(&self, name: &str, ns: &Namespace) -> Result<PathBuf, Error> { todo!() }
    /// Takes the pin away; unknown names succeed.
    pub fn unpin(&self, name: &str) -> Result<(), Error> { todo!() }
    pub fn list(&self) -> Result<Vec<String>, Error> { todo!() }
    pub fn get(&self, name: &str) -> Result<Namespace, Error> { todo!() }
}
/// Warm namespaces, refilled in the background (not during a mass teardown); never reused after a container.
pub struct Pool {}
impl Pool {
    pub fn new(size: usize) -> Self { todo!() }
    pub fn take(&self) -> Result<Namespace, Error> { todo!() }
}
