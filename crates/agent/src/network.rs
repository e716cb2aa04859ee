//! The network of the pod in the guest.
//!
//! A guest that was restored from a checkpoint has the interfaces, addresses and routes of another pod: they are replaced.

use agent_api::{Interface, Neighbor, Network, Route};
use rtnl::{
    AddRoute, Change, Link, PROTOCOL_KERNEL, TABLE_MAIN, add_address, add_tentative_address, addresses, delete_address,
    flags, link_by_name, links,
    netlink::{Batch, Socket},
    subnet::Subnet,
};
use rustix::io::Errno;

use crate::{
    failure::{Unapplied, invalid, system},
    process::Outcome,
};

/// Configures loopback and the interfaces, which are found by their hardware addresses, else by their names. Addresses
/// and routes of them that are not part of the configuration are removed. May be repeated.
pub(crate) fn apply(network: &Network) -> Result<(), Unapplied> {
    let mut socket = Socket::route().map_err(|error| system("open a netlink socket", error))?;
    let loopback = find(&mut socket, "lo")?;
    change(&mut socket, "lo", &Change::flag(flags::UP, true), loopback.index)?;
    network.interfaces.iter().try_for_each(|interface| configure(&mut socket, network, interface))?;
    remove_other_routes(&mut socket, network)?;
    network.routes.iter().try_for_each(|route| set_route(&mut socket, route))?;
    network.neighbors.iter().try_for_each(|neighbor| set_neighbor(&mut socket, neighbor)).map_err(Unapplied::Failed)
}

fn find(socket: &mut Socket, name: &str) -> Outcome<Link> {
    let found = link_by_name(socket, name).map_err(|error| system(format_args!("find interface {name}"), error))?;
    found.ok_or_else(|| invalid(format!("find interface {name}: the guest does not have it")))
}

fn change(socket: &mut Socket, name: &str, change: &Change<'_>, index: u32) -> Outcome<()> {
    let mut batch = Batch::new();
    change.of(&mut batch, index);
    socket.request(batch).map_err(|error| system(format_args!("change interface {name}"), error))
}

fn configure(socket: &mut Socket, network: &Network, interface: &Interface) -> Result<(), Unapplied> {
    let name = interface.name.as_str();
    if !rtnl::valid_name(name) {
        return Err(invalid(format!("configure interface {name:?}: the name is not valid")).into());
    }
    let link = find_interface(socket, network, interface)?;
    if link.name != name {
        // A link that is up cannot be renamed before Linux 6.0.
        change(socket, name, &Change::flag(flags::UP, false), link.index)?;
        change(socket, name, &Change { name: Some(name), ..Change::default() }, link.index)?;
    }
    let up = Change { mtu: Some(interface.mtu), ..Change::flag(flags::UP, true) };
    change(socket, name, &up, link.index)?;
    let present = remove_other_addresses(socket, interface, link.index)?;
    for (address, prefix) in &interface.addresses {
        let subnet = Subnet { address: *address, prefix: *prefix };
        if present.contains(&subnet) {
            continue;
        }
        let mut batch = Batch::new();
        match is_link_local(subnet) {
            true => add_tentative_address(&mut batch, link.index, subnet),
            false => add_address(&mut batch, link.index, subnet),
        }
        allow(socket.request(batch), Errno::EXIST)
            .map_err(|error| system(format_args!("add address {address}/{prefix} to {name}"), error))?;
    }
    Ok(())
}

/// Finds an interface by its hardware address. One that only has the name gets the hardware address: it is of the pod
/// that the guest was saved in.
fn find_interface(socket: &mut Socket, network: &Network, interface: &Interface) -> Result<Link, Unapplied> {
    let name = interface.name.as_str();
    let is_other = |link: &Link| link.loopback || network.interfaces.iter().any(|other| link.mac == other.mac);
    let all = links(socket).map_err(|error| system("list interfaces", error))?;
    let found = all.iter().find(|link| link.mac == interface.mac && !link.loopback);
    let found = found.or_else(|| all.iter().find(|link| link.name == name && !is_other(link))).cloned();
    let link = found.ok_or_else(|| {
        let mac: Vec<String> = interface.mac.iter().map(|byte| format!("{byte:02x}")).collect();
        let cause = format!("no interface of the guest has the address {}", mac.join(":"));
        Unapplied::Absent(invalid(format!("configure interface {name}: {cause}")))
    })?;
    if link.mac != interface.mac {
        // Also removes the addresses that the kernel derived from the earlier one.
        change(socket, name, &Change::flag(flags::UP, false), link.index)?;
        change(socket, name, &Change { mac: Some(&interface.mac), ..Change::default() }, link.index)?;
    }
    Ok(link)
}

/// Removes the addresses of an interface that it is not to have. Returns the others.
fn remove_other_addresses(socket: &mut Socket, interface: &Interface, index: u32) -> Outcome<Vec<Subnet>> {
    let mut present: Vec<Subnet> = addresses(socket)
        .map_err(|error| system("list addresses", error))?
        .into_iter()
        .filter(|address| address.link == index)
        .map(|address| address.address)
        .collect();
    // The kernel derives those that are local to the link from the hardware address.
    let is_kept =
        |subnet: &Subnet| is_link_local(*subnet) || interface.addresses.contains(&(subnet.address, subnet.prefix));
    for subnet in present.iter().filter(|subnet| !is_kept(subnet)) {
        let mut batch = Batch::new();
        delete_address(&mut batch, index, *subnet);
        // Secondary addresses may have been removed with their primary one.
        allow(socket.request(batch), Errno::ADDRNOTAVAIL).map_err(|error| {
            system(format_args!("remove address {}/{} of {}", subnet.address, subnet.prefix, interface.name), error)
        })?;
    }
    present.retain(is_kept);
    Ok(present)
}

/// Removes the routes of the configured interfaces that are not part of the configuration.
fn remove_other_routes(socket: &mut Socket, network: &Network) -> Outcome<()> {
    let mut indices = Vec::new();
    for interface in &network.interfaces {
        indices.push((find(socket, &interface.name)?.index, interface.name.as_str()));
    }
    let present = rtnl::routes(socket).map_err(|error| system("list routes", error))?;
    for route in present.iter().filter(|route| route.table == TABLE_MAIN && route.protocol != PROTOCOL_KERNEL) {
        let Some((_, name)) = indices.iter().find(|(index, _)| *index == route.link) else { continue };
        let is_configured = network.routes.iter().any(|other| {
            other.interface == *name
                && other.destination == (route.to.address, route.to.prefix)
                && other.gateway == route.gateway
        });
        if !is_configured {
            let mut batch = Batch::new();
            route.delete(&mut batch);
            allow(socket.request(batch), Errno::SRCH).map_err(|error| {
                system(format_args!("remove the route to {}/{}", route.to.address, route.to.prefix), error)
            })?;
        }
    }
    Ok(())
}

fn is_link_local(subnet: Subnet) -> bool {
    match subnet.address {
        std::net::IpAddr::V6(address) => address.is_unicast_link_local(),
        std::net::IpAddr::V4(_) => false,
    }
}

/// Treats an error of the kernel as success.
fn allow(outcome: Result<(), rtnl::netlink::Refusal>, allowed: Errno) -> Result<(), rtnl::netlink::Refusal> {
    match outcome {
        Err(refusal) if refusal.errno == allowed => Ok(()),
        outcome => outcome,
    }
}

fn set_route(socket: &mut Socket, route: &Route) -> Outcome<()> {
    let link = find(socket, &route.interface)?;
    let (address, prefix) = route.destination;
    let mut wanted = rtnl::Route::new(Subnet { address, prefix }, route.gateway, link.index);
    wanted.source = route.source;
    wanted.priority = route.metric;
    wanted.is_on_link = route.onlink;
    if route.gateway.is_none() {
        wanted.scope = rtnl::SCOPE_LINK;
    }
    let mut batch = Batch::new();
    wanted.add(&mut batch, AddRoute::Replace);
    socket.request(batch).map_err(|error| system(format_args!("add the route to {address}/{prefix}"), error))
}

fn set_neighbor(socket: &mut Socket, neighbor: &Neighbor) -> Outcome<()> {
    let link = find(socket, &neighbor.interface)?;
    let mut batch = Batch::new();
    rtnl::Neighbor::Address { address: neighbor.address, mac: neighbor.mac }.set(&mut batch, link.index);
    socket.request(batch).map_err(|error| system(format_args!("add the neighbor {}", neighbor.address), error))
}
