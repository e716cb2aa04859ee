use std::{collections::BTreeMap, path::PathBuf};

use monitor_api::UserMappings;
use network::{PodNetworks, PortMapping};
use serde::{Deserialize, Serialize};

/// Which PID namespace a container uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PidMode {
    /// One PID namespace shared by the pod.
    Pod,
    /// A PID namespace of its own for each container.
    Container,
    /// The PID namespace of the node.
    Node,
}

/// Which network or IPC namespace a pod uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SharedMode {
    /// A namespace of the pod.
    Pod,
    /// The namespace of the node.
    Node,
}

/// Identifies a sandbox for the client; a different attempt is a different sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Name {
    /// The pod's name.
    pub name: String,
    /// The pod's uid.
    pub uid: String,
    /// The pod's Kubernetes namespace.
    pub namespace: String,
    /// The number of earlier attempts.
    pub attempt: u32,
}

/// Settings of `/etc/resolv.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Addresses of name servers.
    pub servers: Vec<String>,
    /// Search domains.
    pub searches: Vec<String>,
    /// Options such as `ndots:5`.
    pub options: Vec<String>,
}

/// The validated configuration of `RunPodSandbox`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SandboxConfig {
    /// Name of the sandbox.
    pub name: Name,
    /// Host name; if empty, the node's on the node's network, else the pod's name.
    pub hostname: String,
    /// Directory of the logs of its containers.
    pub log_directory: Option<PathBuf>,
    /// DNS configuration; if absent, the node's.
    pub dns: Option<Dns>,
    /// Ports of the node that are forwarded to ports of the pod.
    pub ports: Vec<PortMapping>,
    /// Labels, for filters.
    pub labels: BTreeMap<String, String>,
    /// Annotations, stored unchanged.
    pub annotations: BTreeMap<String, String>,
    /// Parent cgroup of its containers; if absent, a cgroup of the pod below the default parent.
    pub cgroup_parent: Option<String>,
    /// Sysctls of the pod's namespaces.
    pub sysctls: BTreeMap<String, String>,
    /// Network namespace.
    pub network: SharedMode,
    /// Named networks and additional host names. A client of the daemon's socket requests them; no annotation can.
    #[serde(default)]
    pub named: PodNetworks,
    /// IPC namespace and `/dev/shm`.
    pub ipc: SharedMode,
    /// Default PID namespace of its containers.
    pub pid: PidMode,
    /// Mappings of its user namespace; if absent, the pod does not have one.
    #[serde(default)]
    pub user_namespace: Option<UserMappings>,
    /// Whether it may contain privileged containers.
    pub privileged: bool,
    /// Runtime handler.
    pub runtime_handler: String,
    /// Limits of all its containers together; enforced if the pod has a cgroup of its own.
    pub resources: Option<oci::Resources>,
    /// Resources of the pod itself, in addition to those of its containers.
    #[serde(default)]
    pub overhead: Option<oci::Resources>,
}
