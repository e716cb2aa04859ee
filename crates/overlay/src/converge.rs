//! Makes the kernel's configuration that of an overlay and its peers.

use std::{collections::HashSet, hash::Hash, net::IpAddr};

use rtnl::{
    AddRoute, Neighbor, Route, SCOPE_UNIVERSE, TABLE_MAIN, UNREACHABLE, add_address, addresses, delete_address,
    netlink::{Batch, Refusal, Socket},
    subnet::{Subnet, bits},
};
use rustix::io::Errno;

use crate::{
    Error, Overlay, Peers,
    encryption::Tunnel,
    endpoint::{self, endpoint_mac, endpoint_name},
    rules,
};

/// Protocol number of our routes, which the kernel does not use and iproute2 does not name.
const PROTOCOL: u8 = 80;
/// Priority of the route that answers packets for unknown subnets: after every other route. The identifier of the network
/// is added, so that the route is found again.
const UNREACHABLE_PRIORITY: u32 = 0xff00_0000;

/// Most messages of a batch: a socket's send buffer has 208 KiB by default.
const BATCH_MAX: usize = 256;

/// State of an overlay after [`converge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Converged {
    /// MTU of pods.
    pub mtu: u32,
    /// Number of kernel entries that were added, replaced or deleted.
    pub changes: usize,
}

/// Compares endpoint, addresses, routes, neighbours and forwarding entries of this node with those that the overlay needs,
/// and changes the difference. Connections over entries that are right already are not disturbed. The socket and the
/// calling thread must be in the network namespace of the node.
///
/// # Errors
/// [`Error::Unsupported`] if the kernel has no VXLAN, [`Error::Config`] for an address that is not one of this node and for an
/// MTU that is too large, [`Error::Kernel`]. The entries of other peers are correct even if one is refused.
pub fn converge(socket: &mut Socket, overlay: &Overlay, peers: &Peers) -> Result<Converged, Error> {
    let link = endpoint::ensure(socket, overlay)?;
    let name = endpoint_name(overlay.id);
    let mut tunnel = overlay.encrypted.then(Tunnel::open).transpose()?;
    if let Some(tunnel) = &mut tunnel {
        tunnel.ensure_key(overlay, &link)?;
    }
    let addresses = address_changes(socket, overlay, link.index)?;
    let mut changes = apply(socket, addresses, "set addresses of", &name)?;
    endpoint::set_up(socket, overlay, &link)?;
    let routes = route_changes(socket, overlay, peers, link.index)?;
    changes += apply(socket, routes, "set routes of", &name)?;
    changes += match &mut tunnel {
        Some(tunnel) => {
            let peers = tunnel.changes(overlay, peers, &link)?;
            tunnel.apply(&peers, &link)?
        }
        None => {
            let neighbors = neighbor_changes(socket, overlay, peers, link.index)?;
            apply(socket, neighbors, "set neighbours of", &name)?
        }
    };
    changes += rules::set(socket, overlay)?;
    Ok(Converged { mtu: link.mtu, changes })
}

/// Returns the number of kernel entries that [`converge`] would change, and changes nothing.
///
/// # Errors
/// [`Error::Kernel`].
pub fn differences(socket: &mut Socket, overlay: &Overlay, peers: &Peers) -> Result<usize, Error> {
    let Some(link) = endpoint::current(socket, overlay)? else { return Ok(1) };
    let addresses = address_changes(socket, overlay, link.index)?.len();
    let routes = route_changes(socket, overlay, peers, link.index)?.len();
    let neighbors = match overlay.encrypted {
        true => Tunnel::open()?.changes(overlay, peers, &link)?.count(),
        false => neighbor_changes(socket, overlay, peers, link.index)?.len(),
    };
    Ok(addresses + routes + neighbors + usize::from(!rules::is_current(socket, overlay)?))
}

/// Reports whether this node has the endpoint and the rules that the overlay needs, and returns the MTU of pods. It costs a few calls, however
/// many peers there are; it does not compare their entries.
///
/// # Errors
/// [`Error::Kernel`].
pub fn endpoint_mtu(socket: &mut Socket, overlay: &Overlay) -> Result<Option<u32>, Error> {
    let Some(link) = endpoint::current(socket, overlay)? else { return Ok(None) };
    // Rules are the last that is made, so an endpoint with rules is complete.
    Ok(rules::is_current(socket, overlay)?.then_some(link.mtu))
}

/// Removes an overlay from this node. Succeeds if it is gone, and if its identifier is that of another network now.
///
/// # Errors
/// [`Error::Kernel`]; call it again.
pub fn remove(socket: &mut Socket, id: u32, name: &str) -> Result<(), Error> {
    if let Some(link) = endpoint::find(socket, &endpoint_name(id))?.filter(endpoint::is_tunnel) {
        if !link.alias.is_empty() && link.alias != name {
            return Ok(());
        }
        endpoint::delete(socket, &link)?;
    }
    let mut changes = Changes::default();
    for route in routes(socket)?.iter().filter(|route| is_unreachable_of(route, id)) {
        route.delete(changes.next());
    }
    apply(socket, changes, "delete routes of", &endpoint_name(id))?;
    rules::remove(id)
}

/// The address of an endpoint, which is also the gateway of its subnet: the first address of the subnet.
fn address_of(subnet: &Subnet) -> IpAddr {
    subnet.network()
}

fn host(address: IpAddr) -> Subnet {
    Subnet { address, prefix: bits(address) }
}

fn address_changes(socket: &mut Socket, overlay: &Overlay, link: u32) -> Result<Changes, Error> {
    let fail = |refusal| Error::kernel("list", "addresses of the node", refusal);
    let needed: HashSet<Subnet> = overlay.subnets.iter().map(|subnet| host(address_of(subnet))).collect();
    let present = addresses(socket).map_err(fail)?;
    let present = present.iter().filter(|a| a.link == link && a.scope == SCOPE_UNIVERSE).map(|a| a.address).collect();
    let mut changes = Changes::default();
    let (stale, missing) = compare(&present, &needed);
    for address in stale {
        delete_address(changes.next(), link, *address);
    }
    for address in missing {
        add_address(changes.next(), link, *address);
    }
    Ok(changes)
}

fn routes(socket: &mut Socket) -> Result<Vec<Route>, Error> {
    rtnl::routes(socket).map_err(|refusal| Error::kernel("list", "routes of the node", refusal))
}

/// What distinguishes our routes from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RouteKey {
    to: Subnet,
    gateway: Option<IpAddr>,
    is_unreachable: bool,
}

fn route_changes(socket: &mut Socket, overlay: &Overlay, peers: &Peers, link: u32) -> Result<Changes, Error> {
    let subnets = peers.iter().flat_map(|peer| &peer.subnets);
    // WireGuard chooses the peer by the destination.
    let gateway = |subnet: &Subnet| (!overlay.encrypted).then(|| address_of(subnet));
    let mut needed: HashSet<RouteKey> =
        subnets.map(|subnet| RouteKey { to: *subnet, gateway: gateway(subnet), is_unreachable: false }).collect();
    let unknown = |network: &Subnet| RouteKey { to: *network, gateway: None, is_unreachable: true };
    needed.extend(overlay.networks.iter().map(unknown));
    let is_ours = |route: &&Route| {
        let is_to_peer = route.link == link && route.protocol == PROTOCOL && route.table == TABLE_MAIN;
        is_to_peer && route.kind != UNREACHABLE || is_unreachable_of(route, overlay.id)
    };
    let all = routes(socket)?;
    let key =
        |route: &Route| RouteKey { to: route.to, gateway: route.gateway, is_unreachable: route.kind == UNREACHABLE };
    let present = all.iter().filter(is_ours).map(key).collect();
    let mut changes = Changes::default();
    let (stale, missing) = compare(&present, &needed);
    for key in stale {
        key.route(overlay, link).delete(changes.next());
    }
    for key in missing {
        key.route(overlay, link).add(changes.next(), AddRoute::Replace);
    }
    Ok(changes)
}

impl RouteKey {
    fn route(self, overlay: &Overlay, link: u32) -> Route {
        let is_on_link = self.gateway.is_some();
        let route = Route { protocol: PROTOCOL, is_on_link, ..Route::new(self.to, self.gateway, link) };
        match self.is_unreachable {
            false => route,
            true => Route { link: 0, kind: UNREACHABLE, priority: UNREACHABLE_PRIORITY + overlay.id, ..route },
        }
    }
}

fn is_unreachable_of(route: &Route, id: u32) -> bool {
    route.protocol == PROTOCOL && route.kind == UNREACHABLE && route.priority == UNREACHABLE_PRIORITY + id
}

fn neighbor_changes(socket: &mut Socket, overlay: &Overlay, peers: &Peers, link: u32) -> Result<Changes, Error> {
    let mut needed = HashSet::new();
    for peer in peers.iter() {
        let mac = endpoint_mac(overlay.id, peer.node);
        needed.insert(Neighbor::Forwarding { mac, endpoint: peer.node });
        needed.extend(peer.subnets.iter().map(|subnet| Neighbor::Address { address: address_of(subnet), mac }));
    }
    let present = rtnl::neighbors(socket, link);
    let present = present.map_err(|refusal| Error::kernel("list", "neighbours of the node", refusal))?;
    let present = present.into_iter().collect();
    let mut changes = Changes::default();
    let (stale, missing) = compare(&present, &needed);
    // Stale entries are deleted first: the key of one may be that of a missing one.
    for entry in stale {
        entry.delete(changes.next(), link);
    }
    for entry in missing {
        entry.set(changes.next(), link);
    }
    Ok(changes)
}

/// Returns what only the first set has, and what only the second has.
fn compare<'a, T: Eq + Hash>(present: &'a HashSet<T>, needed: &'a HashSet<T>) -> (Vec<&'a T>, Vec<&'a T>) {
    (present.difference(needed).collect(), needed.difference(present).collect())
}

/// Messages that change entries, in batches that the kernel accepts as one datagram.
#[derive(Default)]
struct Changes(Vec<Batch>);

impl Changes {
    /// Returns the batch for the next message.
    fn next(&mut self) -> &mut Batch {
        if self.0.last().is_none_or(|batch| batch.len() >= BATCH_MAX) {
            self.0.push(Batch::new());
        }
        self.0.last_mut().expect("there is a batch")
    }

    fn len(&self) -> usize {
        self.0.iter().map(Batch::len).sum()
    }
}

/// Sends all messages; returns their number. Entries that are gone already need not be deleted.
fn apply(socket: &mut Socket, changes: Changes, operation: &'static str, object: &str) -> Result<usize, Error> {
    let count = changes.len();
    let fail = |refusal: Refusal| Error::kernel(operation, object, refusal);
    let is_failure =
        |refusal: &Refusal| !matches!(refusal.errno, Errno::NOENT | Errno::SRCH | Errno::ADDRNOTAVAIL | Errno::EXIST);
    let mut first = None;
    for batch in changes.0 {
        let refusals = socket.request_each(batch).map_err(fail)?;
        first = first.or_else(|| refusals.into_iter().find(is_failure));
    }
    first.map_or(Ok(count), |refusal| Err(fail(refusal)))
}
