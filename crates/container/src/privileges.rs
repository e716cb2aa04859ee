//! Privileges of the calling process.

use std::sync::OnceLock;

use rustix::thread::CapabilitySet;

use crate::Error;

/// Privileges that decide how a container is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Privileges {
    /// Whether it may clone and attach mounts in its own mount namespace (`CAP_SYS_ADMIN`).
    pub(crate) mounts: bool,
    /// Whether it may make device nodes that can be opened: it is root in the initial user namespace.
    pub(crate) device_nodes: bool,
}

impl Privileges {
    /// Determines the caller's privileges from its `capabilities`. `staging`: whether it has a staging namespace, which
    /// only root of the initial user namespace can make; then no further check is needed.
    ///
    /// # Errors
    /// The id maps of this process cannot be read.
    pub(crate) fn detect(capabilities: CapabilitySet, staging: bool) -> Result<Self, Error> {
        let mounts = capabilities.contains(CapabilitySet::SYS_ADMIN);
        Ok(Self { mounts, device_nodes: mounts && (staging || in_initial_user_namespace()?) })
    }
}

/// Whether this process is in the initial user namespace. Read once, because no process returns from another one; a
/// failure is not cached, so the next container reads it again.
fn in_initial_user_namespace() -> Result<bool, Error> {
    static INITIAL: OnceLock<bool> = OnceLock::new();
    if let Some(initial) = INITIAL.get() {
        return Ok(*initial);
    }
    let map = std::fs::read_to_string("/proc/self/uid_map")
        .map_err(|error| Error::system("read /proc/self/uid_map", error))?;
    Ok(*INITIAL.get_or_init(|| map.split_whitespace().eq(["0", "0", "4294967295"])))
}
