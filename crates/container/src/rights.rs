//! What the calling process may do.

use std::sync::OnceLock;

use rustix::thread::CapabilitySet;

/// Rights that decide how a container is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    /// To clone and attach mounts where it is (`CAP_SYS_ADMIN`).
    pub(crate) mounts: bool,
    /// To make device nodes that work: root of the machine, in the first user namespace.
    pub(crate) nodes: bool,
}

impl Rights {
    /// `capabilities` are the caller's; `staging`: whether it has a staging namespace, which only root of the machine makes,
    /// so that nothing has to be asked.
    pub(crate) fn of(capabilities: CapabilitySet, staging: bool) -> Self {
        let mounts = capabilities.contains(CapabilitySet::SYS_ADMIN);
        Self { mounts, nodes: mounts && (staging || in_first_user_namespace()) }
    }
}

/// Asked once: nobody comes back from another user namespace.
fn in_first_user_namespace() -> bool {
    static FIRST: OnceLock<bool> = OnceLock::new();
    *FIRST.get_or_init(|| {
        let map = std::fs::read_to_string("/proc/self/uid_map");
        map.is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
    })
}
