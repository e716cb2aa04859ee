//! What the calling process may do.

use std::sync::OnceLock;

use rustix::thread::CapabilitySet;

use crate::Error;

/// Rights that decide how a container is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    /// To clone and attach mounts where it is (`CAP_SYS_ADMIN`).
    pub(crate) mounts: bool,
    /// To make device nodes that work: root of the machine, in the first user namespace.
    pub(crate) nodes: bool,
}

impl Rights {
    /// `capabilities` are the caller's; `staging`: whether it has a staging namespace, which only root of the machine
    /// makes, so that nothing has to be asked.
    ///
    /// # Errors
    /// The maps of this process cannot be read now.
    pub(crate) fn of(capabilities: CapabilitySet, staging: bool) -> Result<Self, Error> {
        let mounts = capabilities.contains(CapabilitySet::SYS_ADMIN);
        Ok(Self { mounts, nodes: mounts && (staging || in_first_user_namespace()?) })
    }
}

/// Read once: no process returns from another user namespace. A failure is not remembered, the next container reads
/// again.
fn in_first_user_namespace() -> Result<bool, Error> {
    static FIRST: OnceLock<bool> = OnceLock::new();
    if let Some(first) = FIRST.get() {
        return Ok(*first);
    }
    let map = std::fs::read_to_string("/proc/self/uid_map")
        .map_err(|error| Error::system("read /proc/self/uid_map", error))?;
    Ok(*FIRST.get_or_init(|| map.split_whitespace().eq(["0", "0", "4294967295"])))
}
