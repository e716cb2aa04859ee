use std::{collections::BTreeMap, path::PathBuf};

use monitor_api::UserMappings;
use network::PortMapping;
use serde::{Deserialize, Serialize};

/// Whose processes a container sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PidMode {
    /// One PID namespace for the pod.
    Pod,
    /// One for each container.
    Container,
    /// The node's.
    Node,
}

/// Whose network or IPC objects a pod sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SharedMode {
    /// The pod's own.
    Pod,
    /// The node's.
    Node,
}

/// What tells one sandbox from another for whoever asks for it; an attempt more is another sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Name {
    /// The pod's name.
    pub name: String,
    /// The pod's uid.
    pub uid: String,
    /// The pod's namespace, as Kubernetes has it.
    pub namespace: String,
    /// How often it was tried before.
    pub attempt: u32,
}

/// What goes into `/etc/resolv.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Addresses.
    pub servers: Vec<String>,
    /// Search domains.
    pub searches: Vec<String>,
    /// `ndots:5`, …
    pub options: Vec<String>,
}

/// `RunPodSandbox`'s config, valid.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SandboxConfig {
    /// Who it is.
    pub name: Name,
    /// Host name; empty: the node's where the node's network is shared, else the pod's name.
    pub hostname: String,
    /// Directory of its containers' logs.
    pub log_directory: Option<PathBuf>,
    /// Name resolution; absent: the node's.
    pub dns: Option<Dns>,
    /// Ports of the node that lead to ports of the pod.
    pub ports: Vec<PortMapping>,
    /// The caller's words, to select by.
    pub labels: BTreeMap<String, String>,
    /// The caller's words, to keep.
    pub annotations: BTreeMap<String, String>,
    /// cgroup above its containers; absent: one of its own below the default.
    pub cgroup_parent: Option<String>,
    /// Of the pod's own namespaces.
    pub sysctls: BTreeMap<String, String>,
    /// Whose network.
    pub network: SharedMode,
    /// Whose IPC objects and `/dev/shm`.
    pub ipc: SharedMode,
    /// Whose processes its containers see by default.
    pub pid: PidMode,
    /// Maps of its user namespace; absent: the node's users.
    #[serde(default)]
    pub user_namespace: Option<UserMappings>,
    /// Whether privileged containers may be in it.
    pub privileged: bool,
    /// Which runtime.
    pub runtime_handler: String,
    /// Limits of all its containers together: kept to where the pod has a cgroup of its own.
    pub resources: Option<oci::Resources>,
    /// What the pod itself costs beside them.
    #[serde(default)]
    pub overhead: Option<oci::Resources>,
}
