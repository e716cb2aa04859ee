//! WireGuard links: key, port and peers, over generic netlink.
//!
//! Source: `linux/wireguard.h`, `linux/genetlink.h`. WireGuard needs Linux 5.6.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use rustix::io::Errno;

use crate::{
    netlink::{Batch, Refusal, Socket, attributes, find},
    query::retry_interrupted,
    subnet::{Subnet, from_octets, octets},
};

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_VERSION: u8 = 2;

const WG_GENL_VERSION: u8 = 1;
const WG_CMD_GET_DEVICE: u8 = 0;
const WG_CMD_SET_DEVICE: u8 = 1;
const WGDEVICE_A_IFINDEX: u16 = 1;
const WGDEVICE_A_PRIVATE_KEY: u16 = 3;
const WGDEVICE_A_PUBLIC_KEY: u16 = 4;
const WGDEVICE_A_LISTEN_PORT: u16 = 6;
const WGDEVICE_A_PEERS: u16 = 8;
const WGPEER_A_PUBLIC_KEY: u16 = 1;
const WGPEER_A_FLAGS: u16 = 3;
const WGPEER_A_ENDPOINT: u16 = 4;
const WGPEER_A_ALLOWEDIPS: u16 = 9;
const WGPEER_F_REMOVE_ME: u32 = 1;
const WGPEER_F_REPLACE_ALLOWEDIPS: u32 = 2;
const WGALLOWEDIP_A_FAMILY: u16 = 1;
const WGALLOWEDIP_A_IPADDR: u16 = 2;
const WGALLOWEDIP_A_CIDR_MASK: u16 = 3;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Most subnets of a peer in one message, and of all its peers: the attribute that they are in has at most 64 KiB. A peer counts
/// as much as three subnets, of 40 bytes each.
const SUBNETS_OF_PEER: usize = 256;
const SUBNETS_OF_MESSAGE: usize = 1024;
const PEER: usize = 3;

/// A key of Curve25519: public, or private.
pub type WireguardKey = [u8; 32];

/// Key, port and peers of a WireGuard link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireguardLink {
    /// Public key; `None` if the link has no private key yet.
    pub public_key: Option<WireguardKey>,
    /// UDP port; zero if the kernel has yet to choose one.
    pub port: u16,
    /// Peers, by their public keys.
    pub peers: BTreeMap<WireguardKey, WireguardPeer>,
}

/// A peer of a WireGuard link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireguardPeer {
    /// Where packets for it are sent.
    pub endpoint: Option<SocketAddr>,
    /// Addresses that are routed to it, and that it may send packets from.
    pub allowed: BTreeSet<Subnet>,
}

/// A peer that is to be added or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireguardChange {
    /// Public key.
    pub key: WireguardKey,
    /// Endpoint, and the subnets to add.
    pub peer: WireguardPeer,
    /// Whether the subnets are to be the only ones. For a moment the peer is without any then.
    pub replaces: bool,
}

/// The generic netlink family of WireGuard.
#[derive(Clone, Copy, Debug)]
pub struct Wireguard {
    family: u16,
}

impl Wireguard {
    /// Finds the family; `None` if this kernel has no WireGuard. The kernel loads its module if it has one. The socket is one of
    /// [`Socket::generic`].
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn find(socket: &mut Socket) -> Result<Option<Self>, Refusal> {
        let mut batch = Batch::new();
        let header = [CTRL_CMD_GETFAMILY, CTRL_VERSION, 0, 0];
        batch.message(GENL_ID_CTRL, 0, &header, |m| m.text(CTRL_ATTR_FAMILY_NAME, "wireguard"));
        let mut family = None;
        let outcome = socket.query(batch, |_, body| {
            let id = body.get(4..).and_then(|body| find(body, CTRL_ATTR_FAMILY_ID));
            family = id.and_then(|id| id.try_into().ok()).map(u16::from_ne_bytes);
        });
        match outcome {
            Err(refusal) if refusal.errno == Errno::NOENT => Ok(None),
            outcome => outcome.map(|()| family.map(|family| Self { family })),
        }
    }

    /// Reads a link.
    ///
    /// # Errors
    /// The kernel's refusal: `ENODEV` if the link does not exist, `EOPNOTSUPP` if it is not one of WireGuard.
    pub fn get(self, socket: &mut Socket, link: u32) -> Result<WireguardLink, Refusal> {
        retry_interrupted(|| {
            let mut batch = Batch::new();
            batch.message(self.family, 0, &[WG_CMD_GET_DEVICE, WG_GENL_VERSION, 0, 0], |m| {
                m.number(WGDEVICE_A_IFINDEX, link);
            });
            let mut found = WireguardLink::default();
            socket.dump(batch, |_, body| found.add(body.get(4..).unwrap_or_default()))?;
            Ok(found)
        })
    }

    /// Appends the message that sets private key and port of a link.
    pub fn set_key(self, batch: &mut Batch, link: u32, private_key: &WireguardKey, port: u16) {
        self.set(batch, link, |m| {
            m.bytes(WGDEVICE_A_PRIVATE_KEY, private_key);
            m.bytes(WGDEVICE_A_LISTEN_PORT, &port.to_ne_bytes());
        });
    }

    /// Appends the message that sets the port of a link.
    pub fn set_port(self, batch: &mut Batch, link: u32, port: u16) {
        self.set(batch, link, |m| m.bytes(WGDEVICE_A_LISTEN_PORT, &port.to_ne_bytes()));
    }

    /// Returns the messages that remove peers, then add or change others; each is a request of its own. What a peer is allowed
    /// is taken from the peer that had it before.
    #[must_use]
    pub fn change_peers(self, link: u32, removed: &[WireguardKey], set: &[WireguardChange]) -> Vec<Batch> {
        let mut batches = Vec::new();
        for keys in removed.chunks(SUBNETS_OF_MESSAGE / PEER) {
            batches.push(self.peers(link, keys.iter(), |m, key| {
                m.bytes(WGPEER_A_PUBLIC_KEY, key);
                m.number(WGPEER_A_FLAGS, WGPEER_F_REMOVE_ME);
            }));
        }
        let parts: Vec<Part> = set.iter().flat_map(Part::of).collect();
        let mut size = 0;
        let mut first = 0;
        for (index, part) in parts.iter().enumerate() {
            let of_part = PEER + part.allowed.len();
            if size + of_part > SUBNETS_OF_MESSAGE {
                batches.push(self.peers(link, parts[first..index].iter(), Part::append));
                (first, size) = (index, 0);
            }
            size += of_part;
        }
        if first < parts.len() {
            batches.push(self.peers(link, parts[first..].iter(), Part::append));
        }
        batches
    }

    fn peers<T>(self, link: u32, peers: impl Iterator<Item = T>, each: impl Fn(&mut Batch, T)) -> Batch {
        let mut batch = Batch::new();
        self.set(&mut batch, link, |m| {
            m.nest(WGDEVICE_A_PEERS, |m| peers.for_each(|peer| m.nest(0, |m| each(m, peer))))
        });
        batch
    }

    fn set(self, batch: &mut Batch, link: u32, inside: impl FnOnce(&mut Batch)) {
        batch.message(self.family, 0, &[WG_CMD_SET_DEVICE, WG_GENL_VERSION, 0, 0], |m| {
            m.number(WGDEVICE_A_IFINDEX, link);
            inside(m);
        });
    }
}

/// A peer, or a part of it if it has many subnets.
struct Part<'a> {
    key: &'a WireguardKey,
    endpoint: Option<SocketAddr>,
    allowed: Vec<Subnet>,
    replaces: bool,
}

impl<'a> Part<'a> {
    fn of(change: &'a WireguardChange) -> Vec<Self> {
        let WireguardChange { key, peer, replaces } = change;
        let allowed: Vec<Subnet> = peer.allowed.iter().copied().collect();
        let mut chunks: Vec<Vec<Subnet>> = allowed.chunks(SUBNETS_OF_PEER).map(<[Subnet]>::to_vec).collect();
        if chunks.is_empty() {
            chunks.push(Vec::new());
        }
        let part = |(index, allowed)| Self { key, endpoint: peer.endpoint, allowed, replaces: *replaces && index == 0 };
        chunks.into_iter().enumerate().map(part).collect()
    }

    fn append(m: &mut Batch, part: &Self) {
        m.bytes(WGPEER_A_PUBLIC_KEY, part.key);
        m.number(WGPEER_A_FLAGS, if part.replaces { WGPEER_F_REPLACE_ALLOWEDIPS } else { 0 });
        if let Some(endpoint) = part.endpoint {
            m.bytes(WGPEER_A_ENDPOINT, &socket_address(endpoint));
        }
        m.nest(WGPEER_A_ALLOWEDIPS, |m| part.allowed.iter().for_each(|subnet| allow(m, *subnet)));
    }
}

fn allow(m: &mut Batch, subnet: Subnet) {
    let family = if subnet.address.is_ipv4() { AF_INET } else { AF_INET6 };
    m.nest(0, |m| {
        m.bytes(WGALLOWEDIP_A_FAMILY, &family.to_ne_bytes());
        m.bytes(WGALLOWEDIP_A_IPADDR, &octets(subnet.address));
        m.byte(WGALLOWEDIP_A_CIDR_MASK, subnet.prefix);
    });
}

/// Encodes a `struct sockaddr_in` or `sockaddr_in6`.
fn socket_address(address: SocketAddr) -> Vec<u8> {
    let family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
    let mut bytes = family.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes.extend_from_slice(&ip.octets());
            bytes.resize(16, 0);
        }
        IpAddr::V6(ip) => {
            bytes.extend_from_slice(&[0; 4]);
            bytes.extend_from_slice(&ip.octets());
            bytes.resize(28, 0);
        }
    }
    bytes
}

fn parse_socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(0..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let address = match family {
        AF_INET => bytes.get(4..8)?,
        AF_INET6 => bytes.get(8..24)?,
        _ => return None,
    };
    Some(SocketAddr::new(from_octets(address)?, port))
}

impl WireguardLink {
    /// Adds what a message has: the peers of a link may be in several messages, and so may the subnets of a peer.
    fn add(&mut self, body: &[u8]) {
        for (kind, value) in attributes(body) {
            match kind {
                WGDEVICE_A_PUBLIC_KEY => self.public_key = value.try_into().ok(),
                WGDEVICE_A_LISTEN_PORT => self.port = value.try_into().map_or(0, u16::from_ne_bytes),
                WGDEVICE_A_PEERS => attributes(value).for_each(|(_, peer)| self.add_peer(peer)),
                _ => {}
            }
        }
    }

    fn add_peer(&mut self, body: &[u8]) {
        let key = find(body, WGPEER_A_PUBLIC_KEY).and_then(|key| WireguardKey::try_from(key).ok());
        let Some(key) = key else { return };
        let peer = self.peers.entry(key).or_default();
        if let Some(endpoint) = find(body, WGPEER_A_ENDPOINT).and_then(parse_socket_address) {
            peer.endpoint = Some(endpoint);
        }
        let allowed = find(body, WGPEER_A_ALLOWEDIPS).unwrap_or_default();
        peer.allowed.extend(attributes(allowed).filter_map(|(_, subnet)| {
            let address = find(subnet, WGALLOWEDIP_A_IPADDR).and_then(from_octets)?;
            Some(Subnet { address, prefix: *find(subnet, WGALLOWEDIP_A_CIDR_MASK)?.first()? })
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::messages;

    #[test]
    fn peers_are_decoded_as_they_were_encoded() {
        let peer = |n: u8, endpoint: &str| WireguardPeer {
            endpoint: Some(endpoint.parse().unwrap()),
            allowed: [format!("10.244.{n}.0/24"), format!("fd44:0:0:{n}::/64")].map(|s| s.parse().unwrap()).into(),
        };
        let mut peers: BTreeMap<WireguardKey, WireguardPeer> = (0..200u8)
            .map(|n| ([n; 32], peer(n, if n % 2 == 0 { "192.0.2.2:1" } else { "[fd02::2]:65535" })))
            .collect();
        let many = (0..3000u32).map(|n| Subnet { address: IpAddr::from((n << 8).to_be_bytes()), prefix: 24 });
        peers.entry([200; 32]).or_default().allowed = many.collect();
        let change = |(key, peer): (&WireguardKey, &WireguardPeer)| WireguardChange {
            key: *key,
            peer: peer.clone(),
            replaces: true,
        };
        let set: Vec<_> = peers.iter().map(change).collect();
        let batches = Wireguard { family: 30 }.change_peers(5, &[], &set);
        assert_eq!(batches.len(), 5);
        let mut link = WireguardLink::default();
        for batch in &batches {
            messages(&batch.buffer).for_each(|(_, body)| link.add(&body[4..]));
        }
        assert_eq!(link.peers, peers);
    }

    #[test]
    fn truncated_messages_are_read_as_far_as_they_go() {
        let peer = WireguardPeer {
            endpoint: Some("192.0.2.2:1".parse().unwrap()),
            allowed: BTreeSet::from(["10.1.0.0/16".parse().unwrap()]),
        };
        let change = WireguardChange { key: [1; 32], peer, replaces: true };
        let batch = Wireguard { family: 30 }.change_peers(5, &[[9; 32]], &[change]).remove(1);
        for length in 0..batch.buffer.len() - 20 {
            WireguardLink::default().add(&batch.buffer[20..20 + length]);
        }
        assert!(parse_socket_address(&[2, 0, 0, 1, 192, 0]).is_none());
    }
}
