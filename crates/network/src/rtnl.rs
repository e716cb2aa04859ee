//! Links, addresses and routes over rtnetlink. Most functions append messages to a batch, which the caller sends.
//!
//! Sources: rtnetlink(7), `linux/if_link.h`, `linux/if_addr.h`, `linux/rtnetlink.h`.

mod address;
mod link;
mod query;

pub(crate) use address::{add_address, add_route, delete_default_route};
pub(crate) use link::{
    BridgeLink, Veth, add_bridge, add_veth, delete, delete_many, disable_ipv6_address_generation, set_hairpin, set_up,
};
pub(crate) use query::{counters, default_routes, link_by_name, links, subnets_of_routes};

/// Maximum length of a link name (`IFNAMSIZ` without the final zero).
pub(crate) const NAME_MAX: usize = 15;

/// Builds a `struct ifinfomsg`.
fn link_header(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    header
}

/// Reports whether a string is a valid link name.
pub(crate) fn valid_name(name: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '/' | ':' | '%');
    (1..=NAME_MAX).contains(&name.len()) && name != "." && name != ".." && name.chars().all(plain)
}
