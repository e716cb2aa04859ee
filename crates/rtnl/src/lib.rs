//! Links, addresses, routes and nftables over netlink.
//!
//! Most functions append a message to a [`Batch`](netlink::Batch); a [`Socket`](netlink::Socket) sends all messages of a
//! batch in one system call, and the kernel has processed them when it returns. A socket stays in the network namespace
//! that it was opened in, whatever namespace its user is in later.
//!
//! Sources: netlink(7), rtnetlink(7), `linux/if_link.h`, `linux/if_addr.h`, `linux/rtnetlink.h`,
//! `linux/neighbour.h`, `linux/netfilter/nf_tables.h`, `linux/wireguard.h`.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod address;
mod change;
mod conntrack;
mod link;
mod neighbor;
pub mod netlink;
mod new_link;
pub mod nft;
mod query;
mod route;
pub mod subnet;
mod traffic;
mod vxlan;
mod wireguard;

pub use address::{Address, add_address, add_route, add_tentative_address, addresses, delete_address};
pub use change::{BridgePort, Change, PortVlan, delete_by_index, flags};
pub use conntrack::forget_udp;
pub use link::{
    BridgeLink, Veth, add_bridge, add_veth, delete, delete_many, disable_ipv6_address_generation, set_hairpin, set_up,
};
pub use neighbor::{Entry, Neighbor, entries, neighbors};
pub use new_link::{Kind, NewLink};
pub use query::{
    Counters, DefaultRoute, Link, Variant, counters, default_routes, delete_default_route, link_by_index, link_by_name,
    links, port_vlans, subnets_of_routes,
};
pub use route::{
    AddRoute, PROTOCOL_BOOT, PROTOCOL_KERNEL, PROTOCOL_RA, Route, Rule, SCOPE_HOST, SCOPE_LINK, SCOPE_NOWHERE,
    SCOPE_UNIVERSE, TABLE_LOCAL, TABLE_MAIN, UNREACHABLE, link_to, route_to, routes, rules,
};
pub use traffic::{Ingress, TokenBucket, delete_ingress, ingress, redirect, token_bucket};
pub use vxlan::Vxlan;
pub use wireguard::{Wireguard, WireguardChange, WireguardKey, WireguardLink, WireguardPeer};

/// Maximum length of a link name (`IFNAMSIZ` without the final zero).
pub const NAME_MAX: usize = 15;

/// Builds a `struct ifinfomsg`.
fn link_header(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    header
}

/// Reports whether a string is a valid link name.
pub fn valid_name(name: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '/' | ':' | '%');
    (1..=NAME_MAX).contains(&name.len()) && name != "." && name != ".." && name.chars().all(plain)
}
