//! What the calling process may do.

use std::sync::OnceLock;

use rustix::thread::CapabilitySet;

use crate::{Error, capabilities};

/// Rights that decide how a container is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    /// To clone and attach mounts where it is (`CAP_SYS_ADMIN`).
    pub(crate) mounts: bool,
    /// To make device nodes that work: root of the machine, in the first user namespace.
    pub(crate) nodes: bool,
}

impl Rights {
    /// `staging`: whether the caller has a staging namespace, which only root of the machine makes; nothing is asked then,
    /// and else only once: nobody comes back from another user namespace.
    pub(crate) fn find(staging: bool) -> Result<Self, Error> {
        static FOUND: OnceLock<Rights> = OnceLock::new();
        if staging {
            return Ok(Self { mounts: true, nodes: true });
        }
        if let Some(found) = FOUND.get() {
            return Ok(*found);
        }
        let own = capabilities::own()?;
        let mounts = own.contains(CapabilitySet::SYS_ADMIN);
        Ok(*FOUND.get_or_init(|| Self { mounts, nodes: mounts && in_first_user_namespace() }))
    }
}

fn in_first_user_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map");
    map.is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}
