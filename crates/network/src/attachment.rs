//! The pod and ports that a caller passes, and the attachment that it gets.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

/// The pod's interface.
pub(crate) const INTERFACE: &str = "eth0";

/// Transport protocol of a mapped port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Transmission Control Protocol.
    Tcp,
    /// User Datagram Protocol.
    Udp,
    /// Stream Control Transmission Protocol.
    Sctp,
}

impl Protocol {
    /// Returns the protocol number of an IP header.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

/// A port of the node that is mapped to a port of the pod. A host port of zero is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMapping {
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port in the pod.
    pub container_port: u16,
    /// Port on the node.
    pub host_port: u16,
    /// Address of the node to map the port on; `None` or the unspecified address means every address.
    pub host_ip: Option<IpAddr>,
}

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
    /// Whether a host port that a process of the node listens on is refused. If false, such a port is mapped to the pod
    /// anyway, as the `portmap` plugin does, and a warning is logged. Only evaluated by
    /// [`Network::attach`](crate::Network::attach), hence not stored.
    #[serde(skip)]
    pub require_free_ports: bool,
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
}
