//! The pod that a caller passes, and the attachment that it gets.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};

use crate::{NetworkChoice, NetworkSelection};

/// The pod that is attached.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PodRef {
    /// Sandbox id, passed to plugins as `CNI_CONTAINERID`.
    pub sandbox: String,
    /// Pod name, passed as `K8S_POD_NAME`.
    pub name: String,
    /// Pod namespace, passed as `K8S_POD_NAMESPACE`.
    pub namespace: String,
    /// Pod UID, passed as `K8S_POD_UID`.
    pub uid: String,
    /// Capability arguments for plugins that declare the capability (`dns`, `bandwidth`, `cgroupPath`, `ipRanges`, …),
    /// as in CNI's CONVENTIONS.md. `portMappings` is made from the ports of
    /// [`Network::attach`](crate::Network::attach).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capability_args: BTreeMap<String, serde_json::Value>,
    /// What the pod requests of its primary network.
    #[serde(skip)]
    pub selection: Option<NetworkSelection>,
    /// Value of the annotation that selects further networks, if the pod has it. It is parsed only if no plugin of the
    /// primary network evaluates it: such a plugin may know more keys.
    #[serde(skip)]
    pub networks: Option<String>,
    /// Named networks that the pod is attached to instead of the network of all pods; empty: loopback only.
    #[serde(skip)]
    pub named: Option<Vec<NetworkChoice>>,
    /// Whether a host port that a process of the node listens on is refused. If false, such a port is mapped to the pod
    /// anyway, as the `portmap` plugin does, and a warning is logged. Only evaluated by
    /// [`Network::attach`](crate::Network::attach), hence not stored.
    #[serde(skip)]
    pub require_free_ports: bool,
}

impl Attachment {
    /// Returns the gateway of the first address of the result that has one.
    #[must_use]
    pub fn gateway(&self) -> Option<IpAddr> {
        let ips = self.raw.get("ips")?.as_array()?;
        ips.iter().find_map(|ip| ip.get("gateway")?.as_str()?.parse().ok())
    }
}

/// The result of attaching a pod.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Attachment {
    /// IP addresses, the primary one first.
    pub ips: Vec<IpAddr>,
    /// Interface name: `eth0`.
    pub interface: String,
    /// Name servers that the network provides.
    pub dns_servers: Vec<String>,
    /// Search domains that the network provides.
    pub dns_search: Vec<String>,
    /// Resolver options that the network provides.
    pub dns_options: Vec<String>,
    /// CNI result, for `inspect`.
    pub raw: serde_json::Value,
    /// Name of the network, with the Kubernetes namespace of its definition if it has one.
    #[serde(default)]
    pub network: String,
    /// Attachments to further networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secondary: Vec<Attachment>,
}
