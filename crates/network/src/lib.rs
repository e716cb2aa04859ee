//! Pod networks: a built-in bridge, or any CNI configuration.
//!
//! Without a file in the CNI directory a pod gets the built-in network: a veth pair on a bridge of the node, an address
//! of a range on this host, the bridge as its gateway, masquerade to the outside and ports of the node. With one, the
//! first by name is the network; `bridge` with `host-local`, `portmap` and `loopback` are done in this process as long
//! as their options are understood whole, and every other plugin is run as the program it is.
//!
//! # Cost
//! No program is run for what is done here. An attachment is two rtnetlink requests on sockets that are open anyway
//! (one makes the link with both its ends, one sets up the pod's), one record, one lease, and one nftables element for
//! each port.
//!
//! # Nothing is lost
//! Before anything is made its intent is in the ledger (`<state>/network/attachments`), and everything can be found
//! again from a sandbox's id: the link's name is made of it, a lease holds it. So [`Network::reconcile`] removes
//! whatever a crash left, at whatever step. Deleting a link takes the kernel 16 to 29 ms, so links go in the
//! background, many at a time; their addresses are free only when they are gone.
//!
//! # The node
//! - Forwarding (`net.ipv4.ip_forward`, and IPv6's with an IPv6 subnet) is turned on, and said so in the log.
//!   [`Network::teardown`] turns it off again if it was off. With IPv6 forwarding the node takes no router
//!   advertisements unless `accept_ra` is 2.
//! - nftables: one table `pinion` for each family, and no other is touched. A verdict in one table does not bind
//!   another: a firewall of the node whose forward chain drops by policy must accept the bridge itself.
//! - A node port answers on every local address, on `127.0.0.1` too (not on `::1`), and to the pod itself.
//!
//! # Vocabulary
//! A *chain* is a network's list of elements (CNI: plugins). An *attachment* is a pod's place in a network. A *lease*
//! is an address given to a pod. A [`PortMapping`] leads a port of the node to one of a pod.
#![forbid(unsafe_code)]

mod attach;
mod attachment;
mod bridge;
mod cni;
mod config;
mod counters;
mod detach;
mod error;
mod figures;
mod firewall;
mod ipam;
mod ledger;
mod listener;
mod netlink;
mod network;
mod nft;
mod reconcile;
mod removal;
mod rtnl;
mod subnet;
mod turns;

pub use attachment::{Attachment, Counters, PodRef, PortMapping, Protocol};
pub use cni::PluginCall;
pub use config::Config;
pub use error::Error;
pub use figures::Figures;
pub use network::Network;
