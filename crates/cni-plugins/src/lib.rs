//! The types of the CNI reference plugins: bridge, macvlan, ipvlan, vlan, ptp, host-device, tap, dummy, loopback; the
//! address management types host-local and static; and portmap, bandwidth, tuning, sbr, vrf and firewall, which change
//! what another plugin made. And two that connect several nodes: overlay, which has no counterpart among the reference
//! plugins, and flannel, which is that of flannel's own plugin.
//!
//! The daemon calls a [`PluginType`] in its own process. The program `pinion-cni` calls the same functions as a plugin
//! program of the name that it is called by, for engines that run programs.
//!
//! Results, links, addresses, routes and sysctls are those of the reference plugins. So are the names of files, chains
//! and interfaces: an attachment that one of the two made can be checked and removed by the other.
//!
//! # Cost
//! A link is created in one netlink message, which contains its namespace, name, MAC address and state. What happens in
//! the pod's namespace is done in one visit: sysctls, and one batch of addresses and routes. No program is run, except
//! address management plugins other than host-local and static.
//!
//! # Missing kernel features
//! A kernel without a kind of link or of queueing discipline gives [`Error::Unsupported`], which names its module.
//!
//! Source: the CNI specification 1.1.0, and 0.3.0 to 1.0.0 for older configurations; CONVENTIONS.md for capabilities.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod address_management;
mod announcer;
mod arguments;
mod bandwidth;
mod bridge;
mod check;
mod delegate;
mod dummy;
mod error;
mod firewall;
mod flannel;
mod hash;
mod host_device;
pub mod host_local;
mod ipvlan;
mod link;
mod loopback;
mod macvlan;
mod masquerade;
mod nft_socket;
mod overlay;
mod plugin;
mod pod;
mod portmap;
pub mod program;
mod ptp;
mod request;
mod result;
mod sbr;
mod static_addresses;
mod sysctl;
mod tap;
mod tuning;
mod vlan;
mod vrf;

pub use announcer::Announcer;
pub use error::Error;
pub use nft_socket::NftSocket;
pub use plugin::PluginType;
pub use request::{Attachment, Request};
pub use result::{Dns, Interface, Ip, PluginResult, Route, VERSIONS};
