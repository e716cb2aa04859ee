//! Defaults of containers and pods that an administrator can change.

use std::collections::BTreeMap;

use oci::{DEFAULT_CAPABILITIES, Resources, Rlimit};

/// What containers and pods get unless their request has something else. Already validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerDefaults {
    /// Resource limits in addition to, or instead of, the limit of open files that the daemon was started with.
    pub rlimits: Vec<Rlimit>,
    /// Sysctls of the namespaces of a pod; those of its request have precedence. A sysctl of a namespace that the pod
    /// shares with the node is not set.
    pub sysctls: BTreeMap<String, String>,
    /// Capabilities of a container that is not privileged, before additions and removals of its request.
    pub capabilities: Vec<String>,
    /// Environment variables, as `NAME=value`; those of the image and of the request have precedence.
    pub env: Vec<String>,
    /// Maximum number of tasks of a container; `None`: unlimited, except by its pod.
    pub pids_limit: Option<i64>,
}

impl Default for ContainerDefaults {
    fn default() -> Self {
        Self {
            rlimits: Vec::new(),
            sysctls: BTreeMap::new(),
            capabilities: DEFAULT_CAPABILITIES.map(str::to_owned).to_vec(),
            env: Vec::new(),
            pids_limit: None,
        }
    }
}

impl ContainerDefaults {
    /// Returns the resource limits of a container, where the daemon was started with this limit of open files.
    pub(crate) fn rlimits(&self, nofile: &Rlimit) -> Vec<Rlimit> {
        let is_set = self.rlimits.iter().any(|limit| limit.kind == nofile.kind);
        let inherited = (!is_set).then(|| nofile.clone());
        inherited.into_iter().chain(self.rlimits.iter().cloned()).collect()
    }

    /// Adds the limit of tasks to resources that do not have one.
    pub(crate) fn limit_pids(&self, resources: &mut Resources) {
        if let (Some(_), None) = (self.pids_limit, &resources.pids) {
            resources.pids = Some(oci::Pids { limit: self.pids_limit });
        }
    }

    /// Returns the sysctls of a pod that has these namespaces of its own.
    pub(crate) fn sysctls(&self, network: bool, ipc: bool) -> impl Iterator<Item = (String, String)> {
        let is_own = move |name: &str| if name.starts_with("net.") { network } else { ipc };
        self.sysctls.clone().into_iter().filter(move |(name, _)| is_own(name))
    }
}

/// Whether a name matches a pattern of images that are never removed by the kubelet: a whole name, a prefix with `*` at
/// its end, or a part with `*` at both ends.
pub(crate) fn is_pinned(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(rest), Some(_)) => name.contains(rest.strip_suffix('*').unwrap_or(rest)),
        (None, Some(prefix)) => name.starts_with(prefix),
        _ => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(kind: &str, value: u64) -> Rlimit {
        Rlimit { kind: kind.to_owned(), soft: value, hard: value }
    }

    #[test]
    fn a_default_limit_of_open_files_replaces_that_of_the_daemon() {
        let mut defaults = ContainerDefaults { rlimits: vec![limit("RLIMIT_CORE", 0)], ..ContainerDefaults::default() };
        let own = limit("RLIMIT_NOFILE", 1024);
        assert_eq!(defaults.rlimits(&own), [own.clone(), limit("RLIMIT_CORE", 0)]);
        defaults.rlimits = vec![limit("RLIMIT_NOFILE", 9)];
        assert_eq!(defaults.rlimits(&own), [limit("RLIMIT_NOFILE", 9)]);
    }

    #[test]
    fn sysctls_of_namespaces_of_the_node_are_not_set() {
        let sysctls = [("net.core.somaxconn", "9"), ("kernel.shmmni", "8")];
        let sysctls = sysctls.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let defaults = ContainerDefaults { sysctls, ..ContainerDefaults::default() };
        let names = |network, ipc| defaults.sysctls(network, ipc).map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(true, true), ["kernel.shmmni", "net.core.somaxconn"]);
        assert_eq!(names(false, true), ["kernel.shmmni"]);
        assert!(names(false, false).is_empty());
    }

    #[test]
    fn pinned_images_are_names_prefixes_and_parts() {
        let name = "registry.example/team/agent:v1";
        assert!(is_pinned(name, name) && is_pinned("registry.example/*", name) && is_pinned("*agent*", name));
        assert!(!is_pinned("agent*", name) && !is_pinned("registry.example/team/agent", name));
    }
}
