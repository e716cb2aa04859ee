//! The links, neighbours and routes of one network namespace.

use std::net::IpAddr;

use netns::Namespace;
use rtnl::{
    Address, Entry, Link, Route, Wireguard,
    netlink::{Refusal, Socket},
};
use rustix::io::Errno;

use crate::{
    Error, Found, Step,
    error::{failed, refused},
};

/// A network namespace before and after the packet.
pub(crate) struct Snapshot<'a> {
    /// Name of the pod; `None` for the node.
    pod: Option<String>,
    namespace: &'a Namespace,
    pub(crate) links: Vec<Link>,
    pub(crate) addresses: Vec<Address>,
    /// Neighbours after the packet: the kernel asks for them when a packet is sent.
    pub(crate) neighbors: Vec<Entry>,
    before: Vec<Link>,
}

impl<'a> Snapshot<'a> {
    /// Reads what is there before the packet.
    pub(crate) fn before(pod: Option<&str>, namespace: &'a Namespace) -> Result<Self, Error> {
        let name = pod.unwrap_or(NODE);
        let mut socket = open(namespace, name)?;
        let before = rtnl::links(&mut socket).map_err(refused("list links", name))?;
        let addresses = rtnl::addresses(&mut socket).map_err(refused("list addresses", name))?;
        let pod = pod.map(str::to_owned);
        Ok(Self { pod, namespace, links: before.clone(), addresses, neighbors: Vec::new(), before })
    }

    /// Reads what is there after the packet.
    pub(crate) fn complete(&mut self) -> Result<(), Error> {
        // A socket for each pod of the node would take too many descriptors.
        let mut socket = open(self.namespace, &self.name())?;
        self.links = rtnl::links(&mut socket).map_err(refused("list links", &self.name()))?;
        self.neighbors = rtnl::entries(&mut socket).map_err(refused("list neighbours", &self.name()))?;
        Ok(())
    }

    /// Returns the name for people.
    pub(crate) fn name(&self) -> String {
        self.pod.clone().unwrap_or_else(|| NODE.to_owned())
    }

    pub(crate) fn route_to(&self, to: IpAddr, arrived: Option<(IpAddr, u32)>) -> Result<Option<Route>, Refusal> {
        let socket = self.namespace.enter(Socket::route).map_err(|_| Refusal::from(Errno::NODEV))?;
        let mut socket = socket.map_err(|error| Refusal::from(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        rtnl::route_to(&mut socket, to, arrived)
    }

    pub(crate) fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    pub(crate) fn name_of(&self, index: u32) -> String {
        self.link(index).map_or_else(|| format!("#{index}"), |link| link.name.clone())
    }

    /// Reports whether others reach this place by an address.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        !address.is_loopback() && self.addresses.iter().any(|own| own.address.address == address)
    }

    /// Returns the neighbour that has an address on a link.
    pub(crate) fn neighbor(&self, link: u32, address: IpAddr) -> Option<&Entry> {
        let is_it = |entry: &&Entry| !entry.is_forwarding && entry.link == link && entry.address == Some(address);
        self.neighbors.iter().find(is_it)
    }

    /// Returns the port of a bridge behind which a MAC address is.
    pub(crate) fn port_of(&self, bridge: u32, mac: [u8; 6]) -> Option<&Link> {
        let entries = self.neighbors.iter().filter(|entry| entry.is_forwarding && entry.mac == Some(mac));
        let mut ports = entries.filter_map(|entry| self.link(entry.link));
        ports.find(|port| port.master == bridge)
    }

    /// Returns the other end of a tunnel for a MAC address.
    pub(crate) fn endpoint_of(&self, tunnel: u32, mac: [u8; 6]) -> Option<IpAddr> {
        let is_it = |entry: &&Entry| entry.is_forwarding && entry.link == tunnel && entry.mac == Some(mac);
        self.neighbors.iter().filter(is_it).find_map(|entry| entry.address)
    }

    /// Returns the address of the peer that a WireGuard link sends packets for a destination to.
    pub(crate) fn peer_of(&self, link: u32, destination: IpAddr) -> Option<IpAddr> {
        let mut socket = self.namespace.enter(Socket::generic).ok()?.ok()?;
        let link = Wireguard::find(&mut socket).ok()??.get(&mut socket, link).ok()?;
        let subnets = link.peers.values().flat_map(|peer| peer.allowed.iter().map(move |subnet| (subnet, peer)));
        let (_, peer) = subnets.filter(|(subnet, _)| subnet.contains(destination)).max_by_key(|(s, _)| s.prefix)?;
        peer.endpoint.map(|endpoint| endpoint.ip())
    }

    pub(crate) fn step(&self, found: Found) -> Step {
        Step { pod: self.pod.clone(), found }
    }

    /// Describes a link, with what it counted while the packet was on its way.
    pub(crate) fn link_step(&self, link: &Link, sends: bool) -> Step {
        let before = self.before.iter().find(|before| before.index == link.index);
        let since = |count: fn(&rtnl::Counters) -> u64| {
            count(&link.counters).saturating_sub(before.map_or(0, |before| count(&before.counters)))
        };
        let (packets, lost) = match sends {
            true => (since(|c| c.tx_packets), since(|c| c.tx_dropped) + since(|c| c.tx_errors)),
            false => (since(|c| c.rx_packets), since(|c| c.rx_dropped) + since(|c| c.rx_errors)),
        };
        let bridge = Some(link.master).filter(|master| *master != 0).map(|master| self.name_of(master));
        self.step(Found::Link { name: link.name.clone(), kind: link.kind.clone(), bridge, sends, packets, lost })
    }

    /// Describes who has an address on a link; nothing if the kernel did not ask, as for a tunnel without addresses.
    pub(crate) fn neighbor_step(&self, link: u32, address: IpAddr) -> Option<Step> {
        let entry = self.neighbor(link, address)?;
        let mac = entry.mac.filter(|_| !entry.has_failed());
        if mac.is_none() && !entry.has_failed() && entry.state & INCOMPLETE == 0 {
            return None;
        }
        let mac = mac.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
        Some(self.step(Found::Neighbor { address, mac, link: self.name_of(link) }))
    }
}

fn open(namespace: &Namespace, name: &str) -> Result<Socket, Error> {
    namespace.enter(Socket::route)?.map_err(failed("open an rtnetlink socket", name))
}

/// Name of the node in errors.
const NODE: &str = "the node";
/// The kernel waits for an answer (`NUD_INCOMPLETE`).
const INCOMPLETE: u16 = 0x01;
