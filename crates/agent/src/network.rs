//! The network of the pod in the guest.

use agent_api::{Interface, Neighbor, Network, Route};
use rtnl::{
    AddRoute, Change, Link, add_address, add_tentative_address, addresses, flags, link_by_name, links,
    netlink::{Batch, Socket},
    subnet::Subnet,
};
use rustix::io::Errno;

use crate::{
    failure::{Unapplied, invalid, system},
    process::Outcome,
};

/// Configures loopback and the interfaces, which are found by their hardware addresses. May be repeated.
pub(crate) fn apply(network: &Network) -> Result<(), Unapplied> {
    let mut socket = Socket::route().map_err(|error| system("open a netlink socket", error))?;
    let loopback = find(&mut socket, "lo")?;
    change(&mut socket, "lo", &Change::flag(flags::UP, true), loopback.index)?;
    network.interfaces.iter().try_for_each(|interface| configure(&mut socket, interface))?;
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

fn configure(socket: &mut Socket, interface: &Interface) -> Result<(), Unapplied> {
    let name = interface.name.as_str();
    if !rtnl::valid_name(name) {
        return Err(invalid(format!("configure interface {name:?}: the name is not valid")).into());
    }
    let all = links(socket).map_err(|error| system("list interfaces", error))?;
    let link = all.iter().find(|link| link.mac == interface.mac && !link.loopback).ok_or_else(|| {
        let mac: Vec<String> = interface.mac.iter().map(|byte| format!("{byte:02x}")).collect();
        let cause = format!("no interface of the guest has the address {}", mac.join(":"));
        Unapplied::Absent(invalid(format!("configure interface {name}: {cause}")))
    })?;
    if link.name != name {
        // A link that is up cannot be renamed before Linux 6.0.
        change(socket, name, &Change::flag(flags::UP, false), link.index)?;
        change(socket, name, &Change { name: Some(name), ..Change::default() }, link.index)?;
    }
    let up = Change { mtu: Some(interface.mtu), ..Change::flag(flags::UP, true) };
    change(socket, name, &up, link.index)?;
    let present = addresses(socket).map_err(|error| system("list addresses", error))?;
    for (address, prefix) in &interface.addresses {
        let subnet = Subnet { address: *address, prefix: *prefix };
        if present.iter().any(|other| other.link == link.index && other.address == subnet) {
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
