use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The network of a pod, as its namespace on the node has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The interfaces, without loopback.
    pub interfaces: Vec<Interface>,
    /// The routes in the main table that the kernel does not make by itself, in the order in which they can be added.
    pub routes: Vec<Route>,
    /// Permanent neighbors.
    #[serde(default)]
    pub neighbors: Vec<Neighbor>,
}

/// An interface, which the agent finds by its hardware address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name in the pod.
    pub name: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Its MTU.
    pub mtu: u32,
    /// Its addresses with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Name of the interface.
    pub interface: String,
    /// Its destination with the prefix length.
    pub destination: (IpAddr, u8),
    /// Its gateway; `None`: the destination is on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Whether the gateway is on the link although no address of the interface says so.
    #[serde(default)]
    pub onlink: bool,
    /// The preferred source address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The metric; 0: the kernel's default.
    #[serde(default)]
    pub metric: u32,
}

/// A permanent neighbor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbor {
    /// Name of the interface.
    pub interface: String,
    /// Its address.
    pub address: IpAddr,
    /// Its hardware address.
    pub mac: [u8; 6],
}
