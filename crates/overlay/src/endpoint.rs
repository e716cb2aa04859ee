//! The tunnel endpoint of this node: its name, MAC address, and the link itself.

use std::net::IpAddr;

use rtnl::{
    Change, Kind, Link, NewLink, Variant, Vxlan, delete_by_index, disable_ipv6_address_generation,
    flags::UP,
    netlink::{Batch, Socket},
    subnet::octets,
};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::{Error, Overlay, definition::MTU_MIN, node_address};

/// Returns the name of the tunnel endpoint of a network.
#[must_use]
pub fn endpoint_name(id: u32) -> String {
    format!("pinion.{id}")
}

/// Returns the MAC address that the endpoint of a node has in a network: locally administered, unicast, and derived from
/// both, so that nodes need not exchange it.
#[must_use]
pub fn endpoint_mac(id: u32, node: IpAddr) -> [u8; 6] {
    let mut hash = Sha256::new();
    hash.update(b"pinion overlay endpoint");
    hash.update(id.to_be_bytes());
    hash.update(octets(node));
    let digest = hash.finalize();
    let mut mac = [0; 6];
    mac.copy_from_slice(&digest[..6]);
    mac[0] = mac[0] & 0xfc | 0x02;
    mac
}

/// Returns the endpoint; creates it unless it exists, and replaces it if it is one of another port or node.
pub(crate) fn ensure(socket: &mut Socket, overlay: &Overlay) -> Result<Link, Error> {
    let name = endpoint_name(overlay.id);
    let mtu = mtu(socket, overlay)?;
    if let Some(link) = find(socket, &name)? {
        if !is_tunnel(&link) {
            let reason = format!("a link of this name exists and is of kind {:?}; rename it", link.kind);
            return Err(Error::config(name, reason));
        }
        if !link.alias.is_empty() && link.alias != overlay.name {
            let reason =
                format!("{} is that of the network {}; every network needs one of its own", overlay.id, link.alias);
            return Err(Error::config("vni", reason));
        }
        if is_suitable(&link, overlay) {
            return adapt(socket, overlay, link, mtu);
        }
        delete(socket, &link)?;
    }
    create(socket, overlay, &name, mtu)?;
    let link = find(socket, &name)?.ok_or_else(|| Error::kernel("find", name, Errno::NODEV))?;
    adapt(socket, overlay, link, mtu)
}

/// Returns the endpoint if it is what it must be.
pub(crate) fn current(socket: &mut Socket, overlay: &Overlay) -> Result<Option<Link>, Error> {
    let mtu = mtu(socket, overlay)?;
    let is_current = |link: &Link| is_suitable(link, overlay) && is_adapted(link, overlay, mtu) && link.flags & UP != 0;
    Ok(find(socket, &endpoint_name(overlay.id))?.filter(is_current))
}

/// Reports whether a link is of a kind that endpoints have.
pub(crate) fn is_tunnel(link: &Link) -> bool {
    ["vxlan", "wireguard"].contains(&&*link.kind)
}

/// Reports whether a link is what cannot be changed later.
fn is_suitable(link: &Link, overlay: &Overlay) -> bool {
    if overlay.encrypted { link.kind == "wireguard" } else { link.variant == Variant::Vxlan(required(overlay)) }
}

/// Reports whether a link has the attributes that can be changed. WireGuard has no MAC address.
fn is_adapted(link: &Link, overlay: &Overlay, mtu: u32) -> bool {
    let has_mac = overlay.encrypted || link.mac == endpoint_mac(overlay.id, overlay.node);
    has_mac && link.mtu == mtu && link.alias == overlay.name
}

fn required(overlay: &Overlay) -> Vxlan {
    Vxlan { id: overlay.id, local: Some(overlay.node), port: overlay.port, is_learning: false }
}

/// Returns the MTU of pods: that of the link of the node's address without the headers of the tunnel, unless configured.
fn mtu(socket: &mut Socket, overlay: &Overlay) -> Result<u32, Error> {
    let link = node_address::link_of(socket, overlay.node)?;
    if link.loopback && overlay.mtu.is_none() {
        let reason =
            format!("the address {} of the node is on lo, and it has no single default route; set mtu", overlay.node);
        return Err(Error::config("mtu", reason));
    }
    let largest = link.mtu.saturating_sub(overlay.overhead());
    if largest < MTU_MIN {
        let reason = format!("{largest} is left of the MTU of {}; {MTU_MIN} is the least", link.name);
        return Err(Error::config("mtu", reason));
    }
    match overlay.mtu {
        Some(mtu) if mtu > largest => {
            let reason = format!("{mtu} is more than {largest}, the MTU of {} without the tunnel's headers", link.name);
            Err(Error::config("mtu", reason))
        }
        Some(mtu) => Ok(mtu),
        None => Ok(largest),
    }
}

fn create(socket: &mut Socket, overlay: &Overlay, name: &str, mtu: u32) -> Result<(), Error> {
    let (kind, mac) = match overlay.encrypted {
        true => (Kind::Wireguard, None),
        false => (
            Kind::Vxlan { id: overlay.id, local: overlay.node, port: overlay.port },
            Some(endpoint_mac(overlay.id, overlay.node)),
        ),
    };
    let module = kind.name();
    let mut batch = Batch::new();
    NewLink { mac, mtu: Some(mtu), ..NewLink::new(name, kind) }.add(&mut batch);
    disable_ipv6_address_generation(&mut batch, name);
    let refusals = socket.request_each(batch).map_err(|refusal| Error::kernel("create", name, refusal))?;
    for refusal in refusals {
        match (refusal.index, refusal.errno) {
            (0, Errno::OPNOTSUPP) => {
                return Err(Error::Unsupported { operation: "create", object: name.into(), module });
            }
            (0, Errno::EXIST) if find(socket, name)?.is_none() => {
                let reason = format!("another link uses VXLAN {} on port {}", overlay.id, overlay.port);
                return Err(Error::config("vni", reason));
            }
            // Another call was faster.
            (0, Errno::EXIST) => return Ok(()),
            (0, _) => return Err(Error::kernel("create", name, refusal)),
            // A kernel without IPv6 generates no addresses.
            _ => {}
        }
    }
    Ok(())
}

/// Corrects the name of the network, MAC address and MTU of an endpoint, which can be changed while it is in use.
fn adapt(socket: &mut Socket, overlay: &Overlay, mut link: Link, mtu: u32) -> Result<Link, Error> {
    if is_adapted(&link, overlay, mtu) {
        return Ok(link);
    }
    let mac = (!overlay.encrypted).then(|| endpoint_mac(overlay.id, overlay.node));
    let mut batch = Batch::new();
    Change { alias: Some(&overlay.name), mac: mac.as_ref().map(|mac| &mac[..]), mtu: Some(mtu), ..Change::default() }
        .of(&mut batch, link.index);
    socket.request(batch).map_err(|refusal| Error::kernel("change", &link.name, refusal))?;
    link.mtu = mtu;
    Ok(link)
}

/// Sets the endpoint up.
pub(crate) fn set_up(socket: &mut Socket, overlay: &Overlay, link: &Link) -> Result<(), Error> {
    if link.flags & UP != 0 {
        return Ok(());
    }
    let mut batch = Batch::new();
    Change::flag(UP, true).of(&mut batch, link.index);
    socket.request(batch).map_err(|refusal| match refusal.errno {
        Errno::ADDRINUSE => {
            let reason = format!("{} is in use on this node; set it to another one on all nodes", overlay.port);
            Error::config("port", reason)
        }
        _ => Error::kernel("set up", &link.name, refusal),
    })
}

pub(crate) fn find(socket: &mut Socket, name: &str) -> Result<Option<Link>, Error> {
    rtnl::link_by_name(socket, name).map_err(|refusal| Error::kernel("find", name, refusal))
}

/// Deletes the endpoint, and with it its addresses, routes and entries.
pub(crate) fn delete(socket: &mut Socket, link: &Link) -> Result<(), Error> {
    let mut batch = Batch::new();
    delete_by_index(&mut batch, link.index);
    match socket.request(batch) {
        Err(refusal) if refusal.errno != Errno::NODEV => Err(Error::kernel("delete", &link.name, refusal)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_addresses_differ() {
        assert!(endpoint_name((1 << 24) - 1).len() <= rtnl::NAME_MAX);
        let mac = |id: u32, node: &str| endpoint_mac(id, node.parse().unwrap());
        assert_eq!(mac(7, "192.0.2.1"), mac(7, "192.0.2.1"));
        assert_ne!(mac(7, "192.0.2.1"), mac(7, "192.0.2.2"));
        assert_ne!(mac(7, "192.0.2.1"), mac(8, "192.0.2.1"));
        assert_eq!(mac(7, "192.0.2.1")[0] & 3, 2);
    }
}
