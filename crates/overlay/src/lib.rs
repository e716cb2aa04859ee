//! A network of pods over the networks of several nodes.
//!
//! Every node has a subnet of the network for its pods, and a VXLAN tunnel endpoint (RFC 7348). Packets for the subnet of
//! another node are routed to the endpoint of that node:
//!
//! ```text
//! route      10.244.2.0/24 via 10.244.2.0 dev pinion.7 onlink      the subnet of the peer
//! neighbour  10.244.2.0 lladdr 0a:5e:… dev pinion.7                the MAC address of its endpoint
//! forwarding 0a:5e:… dev pinion.7 dst 192.0.2.2                    the node of the endpoint
//! ```
//!
//! So the kernel needs three entries for each node, however many pods it has, and nothing is learned and nothing flooded: a
//! packet for an unknown destination is answered with "destination unreachable" and does not leave the node through
//! its default route. The layout is that of flannel's VXLAN backend.
//!
//! The MAC address of an endpoint is derived from the network's identifier and the address of the node, so nodes need to
//! know the address and subnet of each other only: from a file, or from etcd.
//!
//! An encrypted overlay has a WireGuard link in place of the VXLAN endpoint, with a peer for each other node: the route has no
//! gateway, and WireGuard chooses the peer by the destination. Nodes publish their public keys, too.
//!
//! # Crash safety
//! [`converge`] compares the kernel's entries with those that are needed, and changes the difference. It needs no state
//! of its own: what it owns is recognized by the name of the endpoint and by the protocol and priority of routes.
//!
//! # Kernel
//! Linux 3.7 for VXLAN, 4.3 for endpoints with IPv6, 5.6 for WireGuard, 5.2 for `nf_tables` with address translation for both families.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod converge;
mod definition;
mod encryption;
mod endpoint;
mod error;
mod flannel;
mod node_address;
mod peers;
mod public_key;
mod record;
mod rules;
mod settings;

pub use converge::{Converged, converge, differences, endpoint_mtu, remove};
pub use definition::{Definition, Overlay, PORT, default_port};
pub use encryption::{check_encryption, public_key};
pub use endpoint::{endpoint_mac, endpoint_name};
pub use error::Error;
pub use flannel::FlannelEnvironment;
pub use node_address::{local_addresses, node_address};
pub use peers::{PEERS_MAX, Peer, Peers};
pub use public_key::PublicKey;
pub use record::{LEASE_TTL, Record, boot_time, lock};
pub use settings::{EtcdSettings, Settings, Source};
