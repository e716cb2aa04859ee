//! The links, neighbours and routes of one network namespace.

use std::net::IpAddr;

use netns::Namespace;
use rtnl::{
    Address, Entry, Link, Route,
    netlink::{Refusal, Socket},
};

use crate::{
    Error, Found, Step,
    error::{failed, refused},
};

/// A network namespace before and after the packet.
pub(crate) struct Snapshot {
    /// Name of the pod, or `node`.
    pub(crate) name: String,
    pub(crate) links: Vec<Link>,
    pub(crate) addresses: Vec<Address>,
    /// Neighbours after the packet: the kernel asks for them when a packet is sent.
    pub(crate) neighbors: Vec<Entry>,
    before: Vec<Link>,
    socket: Socket,
}

impl Snapshot {
    /// Reads what is there before the packet.
    pub(crate) fn before(name: &str, namespace: &Namespace) -> Result<Self, Error> {
        let socket = namespace.enter(Socket::route)?;
        let mut socket = socket.map_err(failed("open an rtnetlink socket", name))?;
        let before = rtnl::links(&mut socket).map_err(refused("list links", name))?;
        let addresses = rtnl::addresses(&mut socket).map_err(refused("list addresses", name))?;
        Ok(Self { name: name.to_owned(), links: before.clone(), addresses, neighbors: Vec::new(), before, socket })
    }

    /// Reads what is there after the packet.
    pub(crate) fn complete(&mut self) -> Result<(), Error> {
        self.links = rtnl::links(&mut self.socket).map_err(refused("list links", &self.name))?;
        self.neighbors = rtnl::entries(&mut self.socket).map_err(refused("list neighbours", &self.name))?;
        Ok(())
    }

    pub(crate) fn route_to(&mut self, to: IpAddr, arrived: Option<(IpAddr, u32)>) -> Result<Option<Route>, Refusal> {
        rtnl::route_to(&mut self.socket, to, arrived)
    }

    pub(crate) fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    pub(crate) fn name_of(&self, index: u32) -> String {
        self.link(index).map_or_else(|| format!("#{index}"), |link| link.name.clone())
    }

    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address.address == address)
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

    pub(crate) fn step(&self, found: Found) -> Step {
        Step { place: self.name.clone(), found }
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

/// The kernel waits for an answer (`NUD_INCOMPLETE`).
const INCOMPLETE: u16 = 0x01;
