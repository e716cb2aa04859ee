//! Mappings of user ids of pods.

use image::IdMap;
use monitor_api::UserMappings;
use rustix::fd::OwnedFd;

use crate::SandboxConfig;

/// Returns the user and group on the node that root of the pod is mapped to.
pub(crate) fn root_of(config: &SandboxConfig) -> (u32, u32) {
    config.user_namespace.as_ref().map_or((0, 0), UserMappings::root)
}

/// Combines id mappings with a user namespace that has them.
pub(crate) fn id_map_of(maps: &UserMappings, user_namespace: OwnedFd) -> IdMap {
    IdMap { user_namespace, uids: maps.uids.clone(), gids: maps.gids.clone() }
}
