//! Sysctls of a pod.

use std::collections::BTreeMap;

use monitor_api::UserMappings;

use crate::{ContainerDefaults, SandboxConfig, SharedMode};

/// The groups that may create ICMP sockets. The kernel interprets its ids in the user namespace of the writer, which is
/// the node.
const PING_GROUPS: &str = "net.ipv4.ping_group_range";

/// Returns the sysctls of a pod: those of every pod, the defaults of the configuration, and those of its request.
pub(super) fn of_pod(
    config: &SandboxConfig,
    defaults: &ContainerDefaults,
    has_network: bool,
) -> BTreeMap<String, String> {
    let mut sysctls = BTreeMap::new();
    if has_network {
        // As in other engines: a container needs no capability to listen on port 80 or to send a ping.
        sysctls.insert("net.ipv4.ip_unprivileged_port_start".to_owned(), "0".to_owned());
        sysctls.insert(PING_GROUPS.to_owned(), "0 2147483647".to_owned());
    }
    sysctls.extend(defaults.sysctls(has_network, config.ipc == SharedMode::Pod));
    sysctls.extend(config.sysctls.clone());
    if let (Some(users), Some(groups)) = (&config.user_namespace, sysctls.get_mut(PING_GROUPS))
        && let Some(mapped) = mapped_groups(groups, users)
    {
        *groups = mapped;
    }
    sysctls
}

/// Converts a range of groups of a user namespace to groups of the node. `None`: it is not within one mapping. All groups
/// of the node, the default, include those of the pod.
fn mapped_groups(range: &str, users: &UserMappings) -> Option<String> {
    let mut ends = range.split_whitespace().map(|end| end.parse::<u32>().ok());
    let (first, last) = (ends.next()??, ends.next()??);
    let mapping = users.gids.iter().find(|mapping| {
        let end = mapping.container_id.checked_add(mapping.size);
        mapping.container_id <= first && first <= last && end.is_some_and(|end| last < end)
    })?;
    let on_node = |id: u32| (id - mapping.container_id).checked_add(mapping.host_id);
    Some(format!("{} {}", on_node(first)?, on_node(last)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_user_namespace_are_those_of_the_node_that_they_are_mapped_to() {
        let mapping = |container_id, host_id, size| oci::IdMapping { container_id, host_id, size };
        let gids = vec![mapping(0, 200_000, 1000), mapping(1000, 500_000, 64536)];
        let users = UserMappings { uids: gids.clone(), gids };
        for (range, expected) in [
            ("0 999", Some("200000 200999")),
            ("1000\t65535", Some("500000 564535")),
            ("0 65535", None),
            ("0 2147483647", None),
            ("1 0", None),
            ("0", None),
            ("a b", None),
        ] {
            assert_eq!(mapped_groups(range, &users).as_deref(), expected, "{range}");
        }
    }
}
