//! The network of a namespace, as the guest configures it.

use std::net::IpAddr;

use agent_api::{Interface, Neighbor, Network};
use rtnl::{
    Address, Link, PROTOCOL_KERNEL, PROTOCOL_RA, Route, SCOPE_HOST, TABLE_MAIN,
    netlink::Socket,
    subnet::{Subnet, bits},
};

use super::{ADDRESSES_MAX, NEIGHBORS_MAX, ROUTES_MAX, system};
use crate::error::{Error, ErrorKind};

/// Type of routes through a link (`RTN_UNICAST`).
const UNICAST: u8 = 1;
/// Origin of routes of ICMP redirects (`RTPROT_REDIRECT`).
const PROTOCOL_REDIRECT: u8 = 1;
/// Minimum MTU of a link with IPv6 (RFC 8200).
const IPV6_MTU_MIN: u32 = 1280;

/// Returns the network of these interfaces, which are in the namespace of the socket.
///
/// # Errors
/// `Invalid` for a route that the guest cannot have, and for more than the maximum of anything.
pub(super) fn network(socket: &mut Socket, links: &[Link]) -> Result<Network, Error> {
    let all = rtnl::addresses(socket).map_err(|refusal| system("list addresses", refusal))?;
    let mut addresses = all.clone();
    addresses.retain(|address| is_mirrored(address) && links.iter().any(|link| link.index == address.link));
    check_count("addresses", addresses.len(), ADDRESSES_MAX)?;
    let mut routes = rtnl::routes(socket).map_err(|refusal| system("list routes", refusal))?;
    routes.retain(|route| route.table == TABLE_MAIN);
    let prefixes: Vec<u8> = addresses.iter().map(|address| prefix(address, &routes)).collect();
    routes.retain(|route| !is_implied(route, links, &all));
    check_count("routes", routes.len(), ROUTES_MAX)?;
    let interfaces = links.iter().map(|link| interface(link, addresses.iter().zip(&prefixes), &routes)).collect();
    // A gateway must be reachable when its route is added.
    routes.sort_by_key(|route| route.gateway.is_some());
    let routes = routes.iter().map(|route| mirror_route(route, links, &addresses)).collect::<Result<_, Error>>()?;
    Ok(Network { interfaces, routes, neighbors: neighbors(socket, links)? })
}

fn check_count(objects: &str, count: usize, maximum: usize) -> Result<(), Error> {
    if count <= maximum {
        return Ok(());
    }
    let cause = format!("the namespace has {count} {objects}; at most {maximum} are possible");
    Err(Error::new(ErrorKind::Invalid, "mirror network", cause))
}

/// Reports whether the guest gets an address. It makes those with a lifetime itself, from router advertisements.
fn is_mirrored(address: &Address) -> bool {
    const IFA_F_TEMPORARY: u32 = 0x01; // For IPv4, it is the flag of the second address of a subnet.
    let is_temporary = address.address.address.is_ipv6() && address.flags & IFA_F_TEMPORARY != 0;
    address.is_permanent() && !is_temporary && !address.is_duplicate() && address.scope != SCOPE_HOST
}

/// Returns the prefix length of an address for the guest. It is that of a single address if the namespace does not have
/// the route that the guest's kernel would add with a shorter one (ptp networks delete it, and `noprefixroute`).
fn prefix(address: &Address, routes: &[Route]) -> u8 {
    let is_route = |route: &Route| {
        route.protocol == PROTOCOL_KERNEL && route.link == address.link && route.to == address.address.masked()
    };
    if routes.iter().any(is_route) { address.address.prefix } else { bits(address.address.address) }
}

/// Reports whether the guest's kernel adds a route by itself: with an address, or from a router advertisement.
/// `addresses` are all of the namespace.
fn is_implied(route: &Route, links: &[Link], addresses: &[Address]) -> bool {
    match route.protocol {
        PROTOCOL_RA | PROTOCOL_REDIRECT => true,
        PROTOCOL_KERNEL => {
            let has_link = links.iter().any(|link| link.index == route.link);
            let is_of = |address: &Address| address.link == route.link && address.address.masked() == route.to;
            let is_generated = is_link_local(route.to) || route.to.address.is_multicast();
            // The remaining ones lead to the other end of an address with a peer.
            !has_link || route.kind != UNICAST || is_generated || addresses.iter().any(is_of)
        }
        _ => false,
    }
}

fn is_link_local(subnet: Subnet) -> bool {
    matches!(subnet.address, IpAddr::V6(address) if address.is_unicast_link_local())
}

fn interface<'a>(link: &Link, all: impl Iterator<Item = (&'a Address, &'a u8)>, routes: &[Route]) -> Interface {
    let own = all.filter(|(address, _)| address.link == link.index);
    // The MTU of a path cannot be mirrored: the smallest one is that of the interface.
    let paths = routes.iter().filter(|route| route.link == link.index && route.mtu != 0);
    let path_mtu = paths.map(|route| route.mtu.max(IPV6_MTU_MIN)).min();
    Interface {
        name: link.name.clone(),
        // Interfaces with another length are not selected.
        mac: link.mac.as_slice().try_into().unwrap_or_default(),
        mtu: path_mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu)),
        addresses: own.map(|(address, prefix)| (address.address.address, *prefix)).collect(),
    }
}

fn mirror_route(route: &Route, links: &[Link], addresses: &[Address]) -> Result<agent_api::Route, Error> {
    let link = links.iter().find(|link| link.index == route.link && route.kind == UNICAST);
    let link = link.ok_or_else(|| {
        let cause = "a guest has only unicast routes, with one next hop on an interface of the pod";
        Error::new(ErrorKind::Invalid, format!("mirror route {}", route.to), cause)
    })?;
    // The guest's kernel refuses a source that it does not have.
    let is_present = |source: &IpAddr| addresses.iter().any(|address| address.address.address == *source);
    Ok(agent_api::Route {
        interface: link.name.clone(),
        destination: (route.to.address, route.to.prefix),
        gateway: route.gateway,
        onlink: route.is_on_link,
        source: route.source.filter(is_present),
        metric: route.priority,
    })
}

fn neighbors(socket: &mut Socket, links: &[Link]) -> Result<Vec<Neighbor>, Error> {
    let mut neighbors = Vec::new();
    for link in links {
        let operation = || format!("list neighbors of {}", link.name);
        for entry in rtnl::neighbors(socket, link.index).map_err(|refusal| system(operation(), refusal))? {
            if let rtnl::Neighbor::Address { address, mac } = entry {
                neighbors.push(Neighbor { interface: link.name.clone(), address, mac });
            }
        }
    }
    check_count("permanent neighbors", neighbors.len(), NEIGHBORS_MAX)?;
    Ok(neighbors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(text: &str) -> Subnet {
        let (address, prefix) = text.split_once('/').expect("a prefix");
        Subnet { address: address.parse().expect("an address"), prefix: prefix.parse().expect("a number") }
    }

    fn links() -> Vec<Link> {
        vec![Link { index: 2, name: "eth0".into(), mac: vec![2, 0, 0, 0, 0, 1], mtu: 1500, ..Link::default() }]
    }

    fn address(text: &str, flags: u32) -> Address {
        Address { link: 2, address: subnet(text), scope: 0, flags }
    }

    #[test]
    fn temporary_and_duplicate_addresses_are_not_mirrored() {
        for (address, expected) in [
            (address("10.0.0.2/24", 0x80), true),
            (address("10.0.0.3/24", 0x81), true), // The second one of its subnet.
            (address("fd00::2/64", 0x80), true),
            (address("fe80::2/64", 0xc0), true),   // Tentative.
            (address("fd00::3/64", 0x81), false),  // Temporary.
            (address("fd00::4/64", 0x88), false),  // Its detection failed.
            (address("fd00::5/64", 0x100), false), // With a lifetime.
            (Address { scope: SCOPE_HOST, ..address("127.0.0.2/8", 0x80) }, false),
        ] {
            assert_eq!(is_mirrored(&address), expected, "{address:?}");
        }
    }

    #[test]
    fn an_address_without_the_route_of_its_subnet_has_no_subnet() {
        let kernel = |to| Route { protocol: PROTOCOL_KERNEL, ..Route::new(subnet(to), None, 2) };
        let routes = [kernel("10.0.0.0/24"), Route::new(subnet("10.1.0.0/24"), None, 2)];
        assert_eq!(prefix(&address("10.0.0.2/24", 0x80), &routes), 24);
        assert_eq!(prefix(&address("10.1.0.2/24", 0x80), &routes), 32);
        assert_eq!(prefix(&address("fd00::2/64", 0x80), &routes), 128);
    }

    #[test]
    fn routes_of_the_kernel_are_implied_except_to_a_peer() {
        let addresses = [address("10.0.0.2/24", 0x80), address("10.0.0.2/32", 0x80)];
        let route = |to, protocol, link| Route { protocol, ..Route::new(subnet(to), None, link) };
        for (route, expected) in [
            (route("10.0.0.0/24", PROTOCOL_KERNEL, 2), true),
            (route("10.9.0.1/32", PROTOCOL_KERNEL, 2), false),
            (route("10.9.0.1/32", PROTOCOL_KERNEL, 1), true),
            (route("fe80::/64", PROTOCOL_KERNEL, 2), true),
            (route("ff00::/8", PROTOCOL_KERNEL, 2), true),
            (route("::/0", PROTOCOL_RA, 2), true),
            (route("10.0.0.0/24", rtnl::PROTOCOL_BOOT, 2), false),
        ] {
            assert_eq!(is_implied(&route, &links(), &addresses), expected, "{route:?}");
        }
    }

    #[test]
    fn the_smallest_mtu_of_a_path_is_that_of_the_interface() {
        let mtu = |mtu| Route { mtu, ..Route::new(subnet("0.0.0.0/0"), None, 2) };
        let interface = |routes: &[Route]| interface(&links()[0], std::iter::empty(), routes).mtu;
        assert_eq!(interface(&[mtu(0)]), 1500);
        assert_eq!(interface(&[mtu(0), mtu(1450), mtu(9000)]), 1450);
        assert_eq!(interface(&[mtu(600)]), 1280);
    }

    #[test]
    fn routes_that_a_guest_cannot_have_are_refused() {
        let unreachable = Route { kind: rtnl::UNREACHABLE, ..Route::new(subnet("10.0.0.0/8"), None, 2) };
        let several_hops = Route::new(subnet("10.0.0.0/8"), None, 0);
        for route in [unreachable, several_hops] {
            let error = mirror_route(&route, &links(), &[]).expect_err("refused");
            assert_eq!(error.operation, "mirror route 10.0.0.0/8");
        }
        let with_source = Route { source: Some([10, 0, 0, 2].into()), ..Route::new(subnet("10.0.0.0/8"), None, 2) };
        let source = |addresses: &[Address]| mirror_route(&with_source, &links(), addresses).expect("a route").source;
        assert_eq!(source(&[]), None);
        assert_eq!(source(&[address("10.0.0.2/24", 0x80)]), with_source.source);
    }
}
