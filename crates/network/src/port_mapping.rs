//! Ports of the node that are mapped to ports of a pod.

use std::{fmt, net::IpAddr};

use serde::{Deserialize, Serialize};

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
