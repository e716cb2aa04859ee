//! Addresses of this node.

use std::net::IpAddr;

use rtnl::{Link, Route, SCOPE_UNIVERSE, TABLE_MAIN, netlink::Socket};
use rustix::io::Errno;

use crate::Error;

/// Returns the addresses of this node that other nodes may know it by.
///
/// # Errors
/// [`Error::Kernel`].
pub fn local_addresses(socket: &mut Socket) -> Result<Vec<IpAddr>, Error> {
    let all = rtnl::addresses(socket).map_err(|refusal| Error::kernel("list", "addresses of the node", refusal))?;
    Ok(all.iter().filter(|a| a.scope == SCOPE_UNIVERSE).map(|a| a.address.address).collect())
}

/// Returns the address of this node that packets of its default route have: an IPv4 address, if there is one.
///
/// # Errors
/// [`Error::Config`] without a default route; [`Error::Kernel`].
pub fn node_address(socket: &mut Socket) -> Result<IpAddr, Error> {
    let fail = |refusal| Error::kernel("list", "routes of the node", refusal);
    let routes = rtnl::routes(socket).map_err(fail)?;
    let is_default = |route: &&Route| route.to.prefix == 0 && route.table == TABLE_MAIN && route.link != 0;
    let mut defaults: Vec<&Route> = routes.iter().filter(is_default).collect();
    defaults.sort_by_key(|route| (route.to.address.is_ipv6(), route.priority));
    let all = rtnl::addresses(socket).map_err(fail)?;
    for route in defaults {
        if let Some(source) = route.source {
            return Ok(source);
        }
        let is_of_route = |a: &&rtnl::Address| {
            let is_same_family = a.address.address.is_ipv4() == route.to.address.is_ipv4();
            a.link == route.link && a.scope == SCOPE_UNIVERSE && is_same_family && is_lasting(a)
        };
        if let Some(address) = all.iter().find(is_of_route) {
            return Ok(address.address.address);
        }
    }
    Err(Error::config("node", "this node has no default route; set \"node\" to its address"))
}

/// Returns the link that has an address.
pub(crate) fn link_of(socket: &mut Socket, address: IpAddr) -> Result<Link, Error> {
    let fail = |refusal| Error::kernel("list", "addresses of the node", refusal);
    let all = rtnl::addresses(socket).map_err(fail)?;
    let Some(found) = all.iter().find(|a| a.address.address == address) else {
        return Err(Error::config("node", format!("{address} is not an address of this node")));
    };
    let missing = || Error::kernel("find", format!("link of {address}"), Errno::NODEV);
    let link = rtnl::link_by_index(socket, found.link).map_err(fail)?.ok_or_else(missing)?;
    if !link.loopback {
        return Ok(link);
    }
    // With routing on the node, its address is on lo: packets leave through the links of routes.
    let routes = rtnl::routes(socket).map_err(fail)?;
    let is_default = |route: &&Route| route.to.prefix == 0 && route.table == TABLE_MAIN && route.link != 0;
    match routes.iter().find(is_default) {
        Some(route) => rtnl::link_by_index(socket, route.link).map_err(fail)?.ok_or_else(missing),
        None => Ok(link),
    }
}

/// Reports whether an address identifies the node for long: it is not one of privacy extensions (RFC 8981), not deprecated,
/// and no duplicate was or may be found.
fn is_lasting(address: &rtnl::Address) -> bool {
    const IFA_F_TEMPORARY: u32 = 0x01;
    const IFA_F_DEPRECATED: u32 = 0x20;
    let is_ipv6 = address.address.address.is_ipv6();
    let has = |flag: u32| address.flags & flag != 0;
    !(is_ipv6 && has(IFA_F_TEMPORARY) || has(IFA_F_DEPRECATED) || address.is_tentative() || address.is_duplicate())
}
