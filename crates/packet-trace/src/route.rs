//! The way of a packet by links and routes: from a pod to the node, and from the node to where it leaves.

use std::net::IpAddr;

use rtnl::{Link, Route, Variant};

use crate::{Found, Step, place::Snapshot};

/// Types of routes (`RTN_*`) by number.
const KINDS: [&str; 12] = [
    "unspecified",
    "unicast",
    "local",
    "broadcast",
    "anycast",
    "multicast",
    "blackhole",
    "unreachable",
    "prohibit",
    "throw",
    "nat",
    "resolve",
];
/// The type of routes to addresses of the namespace itself.
const LOCAL: u8 = 2;

/// Where a packet continues.
pub(crate) enum Next {
    /// It arrives in this network namespace.
    Here,
    /// It leaves through a link, to a neighbour with this MAC address as far as that is known.
    Link { link: u32, mac: Option<[u8; 6]> },
    /// It goes no further.
    Nowhere,
}

/// Describes the decision for a destination; with `arrived`, for a packet with this source that arrived at this link.
pub(crate) fn decide(
    place: &mut Snapshot<'_>,
    destination: IpAddr,
    arrived: Option<(IpAddr, u32)>,
    steps: &mut Vec<Step>,
) -> Next {
    let route = match place.route_to(destination, arrived) {
        Ok(Some(route)) => route,
        Ok(None) => return Next::Nowhere,
        Err(refusal) => {
            steps.push(place.step(Found::NoRoute { destination, reason: refusal.to_string() }));
            return Next::Nowhere;
        }
    };
    steps.push(place.step(route_step(place, destination, &route)));
    match route.kind {
        LOCAL => Next::Here,
        _ if steps.last().is_some_and(|step| step.found.ends()) => Next::Nowhere,
        _ => {
            let next = route.gateway.unwrap_or(destination);
            let mac = place.neighbor(route.link, next).filter(|entry| !entry.has_failed()).and_then(|entry| entry.mac);
            steps.extend(place.neighbor_step(route.link, next));
            if steps.last().is_some_and(|step| step.found.ends()) {
                return Next::Nowhere;
            }
            Next::Link { link: route.link, mac }
        }
    }
}

fn route_step(place: &Snapshot<'_>, destination: IpAddr, route: &Route) -> Found {
    Found::Route {
        destination,
        kind: KINDS.get(usize::from(route.kind)).copied().unwrap_or("unknown"),
        table: route.table,
        gateway: route.gateway,
        source: route.source,
        link: place.name_of(route.link),
    }
}

/// What is at the end of a link of the node.
pub(crate) enum End {
    /// A link whose other end is elsewhere: in a pod, or outside of the node.
    Port(u32),
    /// The bridge itself: the node receives the frame.
    Node,
}

/// Describes to which peer a WireGuard link sends a packet.
pub(crate) fn encrypted(node: &Snapshot<'_>, link: &Link, destination: IpAddr) -> Step {
    let endpoint = node.peer_of(link.index, destination);
    node.step(Found::Tunnel { link: link.name.clone(), vni: None, endpoint })
}

/// Follows a frame from a link of the node: through a bridge to one of its ports, or into a tunnel.
pub(crate) fn follow(node: &Snapshot<'_>, link: &Link, mac: Option<[u8; 6]>, steps: &mut Vec<Step>) -> End {
    let mut out = link;
    if link.kind == "bridge" {
        let Some(mac) = mac else { return End::Port(link.index) };
        if link.mac == mac {
            return End::Node;
        }
        let Some(port) = node.port_of(link.index, mac) else { return End::Port(link.index) };
        steps.push(node.link_step(port, true));
        out = port;
    } else {
        steps.push(node.link_step(link, true));
    }
    if let Variant::Vxlan(tunnel) = &out.variant {
        let endpoint = mac.and_then(|mac| node.endpoint_of(out.index, mac));
        steps.push(node.step(Found::Tunnel { link: out.name.clone(), vni: Some(tunnel.id), endpoint }));
    }
    End::Port(out.index)
}
