//! Pod networks: a built-in bridge, or any CNI configuration.
//!
//! If the CNI directory has no configuration, a pod gets the built-in network: a veth pair on a bridge of the node, an
//! address of a range on this host, the bridge as its gateway, masquerading for outgoing packets, and port mappings on
//! the node. Otherwise the first configuration by name is the network. The plugins `bridge` with `host-local`,
//! `portmap` and `loopback` are built in and run in this process if all of their options are supported; every other
//! plugin is run as a program.
//!
//! # Cost
//! No program is run for built-in elements. An attachment is two rtnetlink requests on sockets that are already open
//! (one creates the link with both its ends, one configures the pod's end), one record, one lease, and one nftables
//! element for each port.
//!
//! # Crash safety
//! Before any kernel object is created its intent is in the ledger (`<state>/network/attachments`), and every object
//! can be found again from a sandbox's id: the link's name is derived from it, and a lease contains it. So
//! [`Network::reconcile`] removes whatever a crash leaked, at whatever step it happened. Deleting a link takes the
//! kernel 16 to 29 ms, so links are deleted in batches in the background; their addresses are free only after that. The
//! `DEL` of plugins that run in this process is left to the background, too.
//!
//! # The node
//! - Forwarding (`net.ipv4.ip_forward`, and IPv6's with an IPv6 subnet) is turned on, and this is logged.
//!   [`Network::teardown`] turns it off again if it was off. With IPv6 forwarding the node takes no router
//!   advertisements unless `accept_ra` is 2.
//! - nftables: one table `pinion` for each family, and no other table is changed. An accept verdict in one table does
//!   not override another: if the node has a firewall whose forward chain drops by policy, it must accept the bridge.
//! - A host port is reachable on every local address, including `127.0.0.1` (but not `::1`), and from the pod itself.
//!
//! # Vocabulary
//! A *chain* is a network's list of elements (CNI: plugins). An *attachment* connects a pod to a network: the *primary* one
//! with `eth0`, and *secondary* ones that a [`NetworkSelection`] describes. A *named network* is one that people created
//! ([`NetworkDefinition`]); pods join it by a request of the daemon's clients only. A *lease* is an address that is assigned to a pod. A [`PortMapping`] maps a port of the node to one of a pod.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod activity;
mod attach;
mod attach_pod;
mod attachment;
mod attachment_key;
mod bridge;
mod check;
mod cni;
mod collect;
mod config;
mod counters;
mod default_route;
mod deferred;
mod detach;
mod detach_pod;
mod error;
mod firewall;
mod ipam;
mod ledger;
mod listener;
mod metrics;
mod named;
mod names;
mod network;
mod networks;
mod nft;
mod overlay;
mod overlay_passes;
mod overlay_states;
mod plugin_status;
mod port_mapping;
mod reconcile;
mod removal;
mod resolving;
mod sandbox_lock;
mod selection;
mod status;

pub use attachment::{Attachment, PodRef};
pub use cni::PluginCall;
pub use config::{Config, OverlayConfig};
pub use error::{Error, ErrorKind};
pub use metrics::Metrics;
pub use named::{
    AddressPool, DEFAULT_POOLS, Driver, HostEntry, NetworkChoice, NetworkDefinition, NetworkRequest, PodNetworks,
    SubnetRequest,
};
pub use names::{Endpoint, NameTable};
pub use network::Network;
pub use networks::NetworkEndpoint;
pub use port_mapping::{PortMapping, Protocol};
pub use resolver::{ADDRESS as RESOLVER_ADDRESS, NodeFile};
pub use rtnl::Counters;
pub use selection::NetworkSelection;
