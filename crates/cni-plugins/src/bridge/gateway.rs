//! The bridge as the gateway of its pods.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rtnl::{
    Change, Kind, Link, NewLink,
    netlink::{Batch, Socket},
    subnet::Subnet,
};
use rustix::io::Errno;

use super::{by_name, options::Options, port};
use crate::{Error, PluginResult, Route, sysctl};

/// Adds gateways and default routes that the options request to the result, whose addresses are of its third interface.
pub(super) fn complete(result: &mut PluginResult, options: &Options) {
    let mut has_route = [false; 2];
    for ip in &mut result.ips {
        ip.interface = Some(2);
        if ip.gateway.is_none() && options.is_gateway {
            ip.gateway = Some(ip.address.first_usable());
        }
        let ipv4 = ip.address.address.is_ipv4();
        let everything = Subnet {
            address: if ipv4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() },
            prefix: 0,
        };
        let found = &mut has_route[usize::from(ipv4)];
        if options.is_default_gateway && !*found {
            if !result.routes.iter().any(|route| route.gw.is_some() && route.dst == everything) {
                result.routes.push(Route::new(everything, ip.gateway));
            }
            *found = true;
        }
    }
}

/// Gives the bridge, or its interface in the pods' VLAN, the gateways' addresses, and enables forwarding. Returns the
/// interface in the VLAN.
pub(super) fn serve(
    socket: &mut Socket,
    bridge: &Link,
    options: &Options,
    result: &PluginResult,
) -> Result<Option<Link>, Error> {
    let gateways: Vec<Subnet> =
        result.ips.iter().filter_map(|ip| ip.gateway.map(|gateway| ip.address.with(gateway))).collect();
    let of_vlan = match options.vlan {
        0 => None,
        vlan => Some(vlan_interface(socket, bridge, vlan, options)?),
    };
    for gateway in &gateways {
        ensure_address(socket, of_vlan.as_ref().unwrap_or(bridge), *gateway, options)?;
    }
    sysctl::forward(&gateways)?;
    Ok(of_vlan)
}

/// Returns the node's interface in a VLAN of the bridge: a veth pair with one end as a port of the bridge.
fn vlan_interface(socket: &mut Socket, bridge: &Link, vlan: u16, options: &Options) -> Result<Link, Error> {
    let name = format!("{}.{vlan}", bridge.name);
    let fail = |refusal| Error::of_module("create", &name, "veth", refusal);
    // The name of the port is of no importance, but must be unique; the bridge has at most one port for each VLAN.
    let peer = crate::hash::name(rtnl::NAME_MAX, "veth", &name);
    if let Some(link) = rtnl::link_by_name(socket, &name).map_err(fail)? {
        // A call that was killed may have left it without its port. The port of the reference plugin has another name.
        if let Some(port) = rtnl::link_by_name(socket, &peer).map_err(fail)? {
            connect(socket, bridge, &port, vlan, options)?;
        }
        return Ok(link);
    }
    let kind = Kind::Veth { peer: &peer, peer_mac: None, peer_namespace: None, peer_up: true };
    let mut batch = Batch::new();
    NewLink { mtu: Some(bridge.mtu), up: true, ..NewLink::new(&name, kind) }.add(&mut batch);
    match socket.request(batch) {
        Err(refusal) if refusal.errno != Errno::EXIST => return Err(fail(refusal)),
        _ => {}
    }
    let port = by_name(socket, &peer)?;
    connect(socket, bridge, &port, vlan, options)?;
    by_name(socket, &name)
}

/// Makes a link a port of the bridge in a VLAN, unless it is.
fn connect(socket: &mut Socket, bridge: &Link, port: &Link, vlan: u16, options: &Options) -> Result<(), Error> {
    let fail = |refusal| Error::kernel("add to the bridge", &port.name, refusal);
    if port.master == bridge.index {
        let vlans = rtnl::port_vlans(socket).map_err(fail)?;
        if vlans.contains(&(port.index, vlan)) {
            return Ok(());
        }
    } else {
        let mut batch = Batch::new();
        Change { master: Some(bridge.index), ..Change::default() }.of(&mut batch, port.index);
        socket.request(batch).map_err(fail)?;
    }
    port::set_vlans(socket, port, vlan, &[], options.keeps_default_vlan)
}

/// Gives a link an address unless it has it. Another IPv4 address, or one of the same IPv6 subnet, is an error unless it
/// is to be replaced. The MAC address is fixed, because that of a bridge would change with its ports.
fn ensure_address(socket: &mut Socket, link: &Link, address: Subnet, options: &Options) -> Result<(), Error> {
    let fail = |refusal| Error::kernel("add address to", &link.name, refusal);
    let all = rtnl::addresses(socket).map_err(fail)?;
    let ipv4 = address.address.is_ipv4();
    let present: Vec<Subnet> =
        all.iter().filter(|a| a.link == link.index && a.address.address.is_ipv4() == ipv4).map(|a| a.address).collect();
    if present.contains(&address) {
        return Ok(());
    }
    let mut batch = Batch::new();
    let is_in_the_way = |other: &Subnet| other.overlaps(address) || ipv4;
    for other in present.into_iter().filter(is_in_the_way) {
        if !options.replaces_address {
            let reason =
                format!("{} has the address {other}, not {address}; set forceAddress to replace it", link.name);
            return Err(Error::config("bridge", reason));
        }
        rtnl::delete_address(&mut batch, link.index, other);
    }
    rtnl::add_tentative_address(&mut batch, link.index, address);
    if link.mac.iter().any(|byte| *byte != 0) {
        Change { mac: Some(&link.mac), ..Change::default() }.of(&mut batch, link.index);
    }
    match socket.request(batch) {
        // Another request was faster.
        Err(refusal) if refusal.errno != Errno::EXIST => Err(fail(refusal)),
        _ => Ok(()),
    }
}
