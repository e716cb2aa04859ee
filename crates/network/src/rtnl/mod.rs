//! Links, addresses and routes over rtnetlink. Each function adds messages to a batch; who sends it is the caller's
//! matter.
//!
//! Sources: rtnetlink(7), `linux/if_link.h`, `linux/if_addr.h`, `linux/rtnetlink.h`.

mod address;
mod link;
mod query;

pub(crate) use address::{add_address, add_route};
pub(crate) use link::{BridgeLink, Veth, add_bridge, add_veth, delete, delete_many, set_hairpin, set_up, without_ipv6};
pub(crate) use query::{counters, link_by_name, links, subnets_of_routes};

/// As long as a link's name can be (`IFNAMSIZ` without the final zero).
pub(crate) const NAME_MAX: usize = 15;

/// `struct ifinfomsg`
fn link_header(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    header
}

/// Whether a text can be a link's name.
pub(crate) fn valid_name(name: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '/' | ':' | '%');
    (1..=NAME_MAX).contains(&name.len()) && name != "." && name != ".." && name.chars().all(plain)
}
