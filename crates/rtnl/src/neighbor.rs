//! Neighbours: which MAC address an IP address has, and to which endpoint of a tunnel frames for a MAC address are sent.
//!
//! Source: rtnetlink(7), `linux/neighbour.h`.

use std::net::IpAddr;

use crate::{
    address::family,
    netlink::{Batch, CREATE, REPLACE, Refusal, Socket, attributes},
    query::retry_interrupted,
    subnet::{from_octets, octets},
};

const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const AF_BRIDGE: u8 = 7;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// The entry does not age (`NUD_PERMANENT`).
const PERMANENT: u16 = 0x80;
/// The entry belongs to the link itself, not to the bridge it is a port of (`NTF_SELF`).
const OF_LINK: u8 = 0x02;

/// A permanent entry of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Neighbor {
    /// An IP address on the link, with its MAC address.
    Address {
        /// IP address.
        address: IpAddr,
        /// MAC address.
        mac: [u8; 6],
    },
    /// A MAC address behind a tunnel endpoint, for a VXLAN.
    Forwarding {
        /// MAC address.
        mac: [u8; 6],
        /// Address of the endpoint.
        endpoint: IpAddr,
    },
}

impl Neighbor {
    /// Appends the message that adds the entry, or replaces the one of the same IP address, or of the same MAC address.
    pub fn set(&self, batch: &mut Batch, link: u32) {
        self.message(batch, link, RTM_NEWNEIGH, CREATE | REPLACE);
    }

    /// Appends the message that deletes the entry.
    pub fn delete(&self, batch: &mut Batch, link: u32) {
        self.message(batch, link, RTM_DELNEIGH, 0);
    }

    fn message(&self, batch: &mut Batch, link: u32, kind: u16, flags: u16) {
        let (family, of_link, destination, mac) = match self {
            Self::Address { address, mac } => (family(*address), 0, address, mac),
            Self::Forwarding { mac, endpoint } => (AF_BRIDGE, OF_LINK, endpoint, mac),
        };
        let mut header = [0; 12]; // struct ndmsg
        header[0] = family;
        header[4..8].copy_from_slice(&link.to_ne_bytes());
        header[8..10].copy_from_slice(&PERMANENT.to_ne_bytes());
        header[10] = of_link;
        batch.message(kind, flags, &header, |m| {
            m.bytes(NDA_DST, &octets(*destination));
            m.bytes(NDA_LLADDR, mac);
        });
    }

    /// Parses an entry; `None` for one that is not permanent, of another link, or of another kind.
    fn parse(body: &[u8], link: u32) -> Option<Self> {
        let state = u16::from_ne_bytes(body.get(8..10)?.try_into().ok()?);
        if body.get(4..8)? != link.to_ne_bytes() || state & PERMANENT == 0 {
            return None;
        }
        let (mut destination, mut mac) = (None, None);
        for (kind, value) in attributes(body.get(12..)?) {
            match kind {
                NDA_DST => destination = from_octets(value),
                NDA_LLADDR => mac = value.try_into().ok(),
                _ => {}
            }
        }
        match *body.first()? {
            AF_BRIDGE => Some(Self::Forwarding { mac: mac?, endpoint: destination? }),
            _ => Some(Self::Address { address: destination?, mac: mac? }),
        }
    }
}

/// Returns the permanent entries of a link.
pub fn neighbors(socket: &mut Socket, link: u32) -> Result<Vec<Neighbor>, Refusal> {
    dump(socket, |body| Neighbor::parse(body, link))
}

/// An entry of any state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index of the link; of the port for an entry of a bridge.
    pub link: u32,
    /// Whether it says where frames are forwarded to, instead of which MAC address an IP address has.
    pub is_forwarding: bool,
    /// IP address, or the endpoint of a tunnel.
    pub address: Option<IpAddr>,
    /// MAC address; `None` if it is not known yet, or is not found out.
    pub mac: Option<[u8; 6]>,
    /// State (`NUD_*`).
    pub state: u16,
}

impl Entry {
    /// Reports whether the kernel requested the MAC address without an answer (`NUD_FAILED`).
    pub fn has_failed(&self) -> bool {
        self.state & 0x20 != 0
    }

    fn parse(body: &[u8]) -> Option<Self> {
        let mut entry = Self {
            link: u32::from_ne_bytes(body.get(4..8)?.try_into().ok()?),
            is_forwarding: *body.first()? == AF_BRIDGE,
            address: None,
            mac: None,
            state: u16::from_ne_bytes(body.get(8..10)?.try_into().ok()?),
        };
        for (kind, value) in attributes(body.get(12..)?) {
            match kind {
                NDA_DST => entry.address = from_octets(value),
                NDA_LLADDR => entry.mac = value.try_into().ok(),
                _ => {}
            }
        }
        Some(entry)
    }
}

/// Returns the entries of all links, of IPv4, IPv6 and bridges.
pub fn entries(socket: &mut Socket) -> Result<Vec<Entry>, Refusal> {
    dump(socket, Entry::parse)
}

fn dump<T>(socket: &mut Socket, parse: impl Fn(&[u8]) -> Option<T>) -> Result<Vec<T>, Refusal> {
    let mut all = Vec::new();
    for family in [2, 10, AF_BRIDGE] {
        all.extend(retry_interrupted(|| {
            let mut header = [0; 12];
            header[0] = family;
            let mut batch = Batch::new();
            batch.message(RTM_GETNEIGH, 0, &header, |_| {});
            let mut found = Vec::new();
            socket.dump(batch, |_, body| found.extend(parse(body)))?;
            Ok(found)
        })?);
    }
    Ok(all)
}
