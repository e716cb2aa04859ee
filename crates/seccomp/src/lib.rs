//! Seccomp profiles compiled to BPF. (contract stub)
#![allow(missing_docs, unused_variables)]
/// A compiled filter: an array of `struct sock_filter`, and the flags to load it with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program { pub filter: Vec<u8>, pub flags: u32 }
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);
/// Compiles a profile: binary search over ranges of syscall numbers per architecture; pure.
pub fn compile(profile: &oci::Seccomp) -> Result<Program, Error> { todo!() }
/// The default profile as Docker and containerd have it, for these capabilities (`CAP_SYS_ADMIN`, …).
pub fn default_profile(capabilities: &[String]) -> oci::Seccomp { todo!() }
/// Compiled programs by content, so that a profile is compiled once per process.
#[derive(Default)]
pub struct Cache {}
impl Cache {
    pub fn compile(&self, profile: &oci::Seccomp) -> Result<std::sync::Arc<Program>, Error> { todo!() }
}
impl Program {
    /// Bytes for a memfd: flags (u32 LE), then the filter. `from_bytes` bounds and checks them.
    pub fn to_bytes(&self) -> Vec<u8> { todo!() }
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> { todo!() }
}
