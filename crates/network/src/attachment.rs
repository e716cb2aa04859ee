//! What a pod asks of its network, and what it gets.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

/// Transport protocol of a mapped port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
    /// SCTP
    Sctp,
}

impl Protocol {
    /// The number in an IP header.
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

/// A port of the node that leads to a port of the pod. A host port of zero maps nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMapping {
    /// Its protocol.
    pub protocol: Protocol,
    /// The pod's port.
    pub container_port: u16,
    /// The node's port.
    pub host_port: u16,
    /// On this address of the node only; none, or the unspecified address: on each.
    pub host_ip: Option<IpAddr>,
}

/// Who is attached.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PodRef {
    /// The sandbox's id, the `CNI_CONTAINERID`.
    pub sandbox: String,
    /// `K8S_POD_NAME`
    pub name: String,
    /// `K8S_POD_NAMESPACE`
    pub namespace: String,
    /// `K8S_POD_UID`
    pub uid: String,
    /// Capability arguments for plugins that declare the capability (`dns`, `bandwidth`, `cgroupPath`, `ipRanges`, …),
    /// as in CNI's CONVENTIONS.md. `portMappings` is made from the ports of
    /// [`Network::attach`](crate::Network::attach).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capability_args: BTreeMap<String, serde_json::Value>,
    /// Whether a host port that a process of the node listens on is refused. Without it such a port leads to the pod,
    /// as the `portmap` plugin does it, and the log says so. Of the moment of
    /// [`Network::attach`](crate::Network::attach) only.
    #[serde(skip)]
    pub free_ports: bool,
}

/// A pod's place in its network.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Attachment {
    /// Its addresses, the primary one first.
    pub ips: Vec<IpAddr>,
    /// Its interface: `eth0`.
    pub interface: String,
    /// Name servers the network asks for.
    pub dns_servers: Vec<String>,
    /// Search domains the network asks for.
    pub dns_search: Vec<String>,
    /// Resolver options the network asks for.
    pub dns_options: Vec<String>,
    /// The CNI result, for `inspect`.
    pub raw: serde_json::Value,
}

/// An interface's counters, since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Its name in the pod.
    pub interface: String,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Receive errors.
    pub rx_errors: u64,
    /// Packets that were received and dropped.
    pub rx_dropped: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Transmit errors.
    pub tx_errors: u64,
    /// Packets that were dropped instead of sent.
    pub tx_dropped: u64,
}

impl Counters {
    /// The same link seen from its other end, which has this name.
    pub(crate) fn mirrored(self, interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            rx_bytes: self.tx_bytes,
            rx_packets: self.tx_packets,
            rx_errors: self.tx_errors,
            rx_dropped: self.tx_dropped,
            tx_bytes: self.rx_bytes,
            tx_packets: self.rx_packets,
            tx_errors: self.rx_errors,
            tx_dropped: self.rx_dropped,
        }
    }
}
