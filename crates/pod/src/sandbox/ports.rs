//! How port mappings are written into a record.

use std::net::IpAddr;

use network::{PortMapping, Protocol};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
struct Port {
    protocol: Wire,
    container_port: u16,
    host_port: u16,
    host_ip: Option<IpAddr>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Wire {
    Tcp,
    Udp,
    Sctp,
}

pub(super) fn serialize<S: Serializer>(ports: &[PortMapping], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(ports.iter().map(|port| Port {
        protocol: match port.protocol {
            Protocol::Tcp => Wire::Tcp,
            Protocol::Udp => Wire::Udp,
            Protocol::Sctp => Wire::Sctp,
        },
        container_port: port.container_port,
        host_port: port.host_port,
        host_ip: port.host_ip,
    }))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PortMapping>, D::Error> {
    let ports = Vec::<Port>::deserialize(deserializer)?;
    let mapping = |port: Port| PortMapping {
        protocol: match port.protocol {
            Wire::Tcp => Protocol::Tcp,
            Wire::Udp => Protocol::Udp,
            Wire::Sctp => Protocol::Sctp,
        },
        container_port: port.container_port,
        host_port: port.host_port,
        host_ip: port.host_ip,
    };
    Ok(ports.into_iter().map(mapping).collect())
}
