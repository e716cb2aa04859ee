//! The tunnel of an encrypted overlay: a WireGuard link, whose peers are the other nodes with their subnets. So a packet of
//! another node is only accepted if its source is one of that node's pods.
//!
//! The private key is in the kernel only: it is made with the link, and is gone with it. Nodes publish their public keys with
//! their subnets.

use std::{collections::BTreeMap, net::SocketAddr};

use rtnl::{
    Link, Wireguard, WireguardChange, WireguardKey, WireguardPeer,
    netlink::{Batch, Socket},
};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::{Error, Overlay, Peers, PublicKey, endpoint};

/// Name of the kernel module.
pub(crate) const MODULE: &str = "wireguard";

/// Reads and changes the tunnel of this node.
pub(crate) struct Tunnel {
    socket: Socket,
    family: Wireguard,
}

impl Tunnel {
    pub(crate) fn open() -> Result<Self, Error> {
        let fail = |cause: std::io::Error| Error::kernel("open", "generic netlink socket", cause);
        let mut socket = Socket::generic().map_err(fail)?;
        let family = Wireguard::find(&mut socket).map_err(|refusal| fail(refusal.into()))?;
        let missing = || Error::Unsupported { operation: "encrypt", object: "overlay".into(), module: MODULE };
        Ok(Self { family: family.ok_or_else(missing)?, socket })
    }

    /// Gives a link a private key unless it has one, and the port of the overlay. Returns its public key.
    pub(crate) fn ensure_key(&mut self, overlay: &Overlay, link: &Link) -> Result<PublicKey, Error> {
        let current = self.get(link)?;
        let mut batch = Batch::new();
        match current.public_key {
            None => self.family.set_key(&mut batch, link.index, &random_key()?, overlay.port),
            Some(_) if current.port != overlay.port => self.family.set_port(&mut batch, link.index, overlay.port),
            Some(key) => return Ok(PublicKey(key)),
        }
        let fail = |refusal: rtnl::netlink::Refusal| Error::kernel("set key and port of", &link.name, refusal);
        self.socket.request(batch).map_err(fail)?;
        let key = self.get(link)?.public_key;
        key.map(PublicKey).ok_or_else(|| Error::kernel("read", format!("key of {}", link.name), missing_data()))
    }

    fn get(&mut self, link: &Link) -> Result<rtnl::WireguardLink, Error> {
        let fail = |refusal| Error::kernel("read peers of", &link.name, refusal);
        self.family.get(&mut self.socket, link.index).map_err(fail)
    }

    /// Compares the peers of the link with those of the overlay.
    pub(crate) fn changes(&mut self, overlay: &Overlay, peers: &Peers, link: &Link) -> Result<PeerChanges, Error> {
        let mut needed = needed(overlay, peers);
        let link = self.get(link)?;
        // The kernel ignores a peer with the link's own key, which another node has no reason to publish.
        needed.retain(|key, _| Some(key) != link.public_key.as_ref());
        let removed = link.peers.keys().filter(|key| !needed.contains_key(*key)).copied().collect();
        let set = needed.into_iter().filter_map(|(key, peer)| change(key, peer, link.peers.get(&key))).collect();
        let is_ready = link.public_key.is_some() && link.port == overlay.port;
        Ok(PeerChanges { removed, set, is_ready })
    }

    /// Applies changes; returns their number.
    pub(crate) fn apply(&mut self, changes: &PeerChanges, link: &Link) -> Result<usize, Error> {
        for batch in self.family.change_peers(link.index, &changes.removed, &changes.set) {
            self.socket.request(batch).map_err(|refusal| Error::kernel("set peers of", &link.name, refusal))?;
        }
        Ok(changes.count())
    }
}

/// How the peers of a link differ from those of the overlay.
pub(crate) struct PeerChanges {
    removed: Vec<WireguardKey>,
    set: Vec<WireguardChange>,
    /// Whether the link has a key and the port of the overlay.
    is_ready: bool,
}

impl PeerChanges {
    pub(crate) fn count(&self) -> usize {
        // The kernel has the address that a peer sent from last: an endpoint may differ, and is only set again.
        let set = self.set.iter().filter(|change| change.replaces || !change.peer.allowed.is_empty());
        self.removed.len() + set.count() + usize::from(!self.is_ready)
    }
}

/// Returns how a peer differs from the one that is needed.
fn change(key: WireguardKey, needed: WireguardPeer, present: Option<&WireguardPeer>) -> Option<WireguardChange> {
    let Some(present) = present else { return Some(WireguardChange { key, peer: needed, replaces: true }) };
    if *present == needed {
        return None;
    }
    if !needed.allowed.is_superset(&present.allowed) {
        return Some(WireguardChange { key, peer: needed, replaces: true });
    }
    let missing = needed.allowed.difference(&present.allowed).copied().collect();
    Some(WireguardChange { key, peer: WireguardPeer { allowed: missing, ..needed }, replaces: false })
}

/// Returns the peers that the link needs. A node may have several subnets.
fn needed(overlay: &Overlay, peers: &Peers) -> BTreeMap<WireguardKey, WireguardPeer> {
    let mut needed: BTreeMap<WireguardKey, WireguardPeer> = BTreeMap::new();
    for (peer, key) in peers.iter().filter_map(|peer| Some((peer, peer.key?))) {
        let entry = needed.entry(key.0).or_default();
        entry.endpoint = Some(SocketAddr::new(peer.node, overlay.port));
        entry.allowed.extend(&peer.subnets);
    }
    needed
}

/// Reports an error if this kernel cannot encrypt.
///
/// # Errors
/// [`Error::Unsupported`], [`Error::Kernel`].
pub fn check_encryption() -> Result<(), Error> {
    Tunnel::open().map(drop)
}

fn random_key() -> Result<WireguardKey, Error> {
    let mut key = [0; 32];
    // The kernel clears and sets the bits that Curve25519 requires (RFC 7748, section 5).
    getrandom(&mut key, GetRandomFlags::empty()).map_err(|errno| Error::kernel("get", "random bytes", errno))?;
    Ok(key)
}

fn missing_data() -> std::io::Error {
    std::io::Error::other("the kernel returned none")
}

/// Creates the endpoint of an encrypted overlay unless it exists, and returns its public key; `None` if the overlay is not
/// encrypted. It depends on identifier, port and node of the overlay, and not on its subnets: a node publishes it together with
/// them. Call it with the [lock](crate::lock) of the overlay.
///
/// # Errors
/// As [`converge`](crate::converge).
pub fn public_key(socket: &mut Socket, overlay: &Overlay) -> Result<Option<PublicKey>, Error> {
    if !overlay.encrypted {
        return Ok(None);
    }
    let link = endpoint::ensure(socket, overlay)?;
    Tunnel::open()?.ensure_key(overlay, &link).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_changed() {
        let peer = |endpoint: &str, subnets: &[&str]| WireguardPeer {
            endpoint: Some(endpoint.parse().unwrap()),
            allowed: subnets.iter().map(|subnet| subnet.parse().unwrap()).collect(),
        };
        let (one, two) = ("10.244.1.0/24", "10.244.2.0/24");
        let needed = peer("192.0.2.1:7", &[one, two]);
        let change = |present: Option<&WireguardPeer>| change([1; 32], needed.clone(), present);
        assert_eq!(change(Some(&needed)), None);
        let of = |present: WireguardPeer| change(Some(&present)).map(|change| (change.peer, change.replaces)).unwrap();
        assert_eq!(change(None).unwrap().peer, needed);
        assert_eq!(of(peer("192.0.2.9:7", &[one, two])), (peer("192.0.2.1:7", &[]), false), "it sent from elsewhere");
        assert_eq!(of(peer("192.0.2.1:7", &[one])), (peer("192.0.2.1:7", &[two]), false));
        assert_eq!(of(peer("192.0.2.1:7", &[one, "10.244.3.0/24"])), (needed.clone(), true));
        let roamed = change(Some(&peer("192.0.2.9:7", &[one, two]))).unwrap();
        assert_eq!(PeerChanges { removed: vec![], set: vec![roamed], is_ready: true }.count(), 0);
    }
}
