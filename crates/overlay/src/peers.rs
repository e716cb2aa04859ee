//! The other nodes of an overlay.

use std::{collections::BTreeMap, net::IpAddr};

use rtnl::subnet::{Subnet, number};
use serde::{Deserialize, Serialize};

use crate::{Error, Overlay, PublicKey, definition::check_subnets};

/// Largest number of peers.
pub const PEERS_MAX: usize = 5000;

/// Most subnets that one node may have for each range of the network: more than one if it was claimed twice.
const SUBNETS_OF_NODE_MAX: usize = 16;

/// Another node of the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Address of the node.
    pub node: IpAddr,
    /// Subnets of the node, one within each range of the network, in the same order.
    pub subnets: Vec<Subnet>,
    /// Public key of the node, if the overlay is encrypted.
    #[serde(default, rename = "publicKey", skip_serializing_if = "Option::is_none")]
    pub key: Option<PublicKey>,
}

/// Peers that fit to an overlay and to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers(Vec<Peer>);

impl Peers {
    /// Checks peers, which may include this node itself. Returns those that are valid, and why each of the others is not:
    /// one node with a wrong configuration must not disconnect the rest. Of two nodes with one subnet the first has it. A
    /// node may be there several times, with different subnets.
    #[must_use]
    pub fn select(overlay: &Overlay, peers: impl IntoIterator<Item = Peer>) -> (Self, Vec<Error>) {
        let (mut selected, mut refused) = (Vec::new(), Vec::new());
        let mut taken = Taken::default();
        overlay.subnets.iter().for_each(|subnet| taken.add(*subnet, overlay.node));
        for peer in peers.into_iter().filter(|peer| peer.node != overlay.node) {
            match check(overlay, selected.len(), &taken, &peer) {
                Ok(()) => {
                    peer.subnets.iter().for_each(|subnet| taken.add(*subnet, peer.node));
                    taken.keys.extend(peer.key.map(|key| (key, peer.node)));
                    *taken.nodes.entry(peer.node).or_default() += 1;
                    selected.push(peer);
                }
                Err(error) => refused.push(error),
            }
        }
        (Self(selected), refused)
    }

    /// Returns the peers.
    #[must_use]
    pub fn into_vec(self) -> Vec<Peer> {
        self.0
    }

    /// Iterates over the peers.
    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.0.iter()
    }

    /// Returns the number of peers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reports whether the node is alone: it has zero peers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What has a node already.
#[derive(Default)]
struct Taken {
    /// Subnets, by their family and first address.
    subnets: BTreeMap<(bool, u128), (Subnet, IpAddr)>,
    keys: BTreeMap<PublicKey, IpAddr>,
    /// How often each node is there.
    nodes: BTreeMap<IpAddr, usize>,
}

impl Taken {
    fn key(subnet: Subnet) -> (bool, u128) {
        (subnet.address.is_ipv4(), number(subnet.network()))
    }

    fn add(&mut self, subnet: Subnet, node: IpAddr) {
        self.subnets.insert(Self::key(subnet), (subnet, node));
    }

    /// Returns a subnet that has addresses in common with another one. Those that are there have none in common, so only
    /// the neighbours need to be compared.
    fn overlapping(&self, subnet: Subnet) -> Option<(Subnet, IpAddr)> {
        let key = Self::key(subnet);
        let before = self.subnets.range(..=key).next_back();
        let after = self.subnets.range(key..).next();
        before.into_iter().chain(after).map(|(_, taken)| *taken).find(|(taken, _)| taken.overlaps(subnet))
    }
}

fn check(overlay: &Overlay, selected: usize, taken: &Taken, peer: &Peer) -> Result<(), Error> {
    let node = peer.node;
    let refused = |reason: String| Err(Error::config(format!("node {node}"), reason));
    if selected >= PEERS_MAX {
        return refused(format!("there are {PEERS_MAX} nodes already"));
    }
    if node.is_ipv4() != overlay.node.is_ipv4() {
        return refused(format!("its address is not of the family of this node's, {}", overlay.node));
    }
    if node.is_unspecified() || node.is_multicast() || node.is_loopback() {
        return refused("its address is not one that other nodes can reach".into());
    }
    if let Some(network) = overlay.networks.iter().find(|network| network.contains(node)) {
        return refused(format!("its address is within the network {network}"));
    }
    if let Err(error) = check_subnets(&overlay.networks, &peer.subnets) {
        return refused(error.to_string());
    }
    if taken.nodes.get(&node).is_some_and(|count| *count >= SUBNETS_OF_NODE_MAX) {
        return refused(format!("it has {SUBNETS_OF_NODE_MAX} subnets already"));
    }
    match peer.key {
        None if overlay.encrypted => return refused("it has no public key, but the network is encrypted".into()),
        Some(key) if taken.keys.get(&key).is_some_and(|other| *other != node) => {
            return refused(format!("its public key {key} is that of node {}", taken.keys[&key]));
        }
        _ => {}
    }
    for own in &peer.subnets {
        if let Some((theirs, other)) = taken.overlapping(*own) {
            return refused(format!("its subnet {own} overlaps {theirs} of node {other}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::tests::definition;

    fn peer(node: &str, subnets: &[&str]) -> Peer {
        let subnets = subnets.iter().map(|s| s.parse().unwrap()).collect();
        Peer { node: node.parse().unwrap(), subnets, key: None }
    }

    #[test]
    fn peers_of_an_encrypted_network_have_keys_of_their_own() {
        let overlay = Overlay::new(crate::Definition { encrypted: true, ..definition() }).unwrap();
        let with = |n: u8, node: u8, key: Option<u8>| Peer {
            key: key.map(|byte| PublicKey([byte; 32])),
            ..peer(&format!("192.0.2.{node}"), &[&format!("10.244.{n}.0/24"), &format!("fd44:0:0:{n}::/64")])
        };
        let all =
            [with(2, 2, Some(2)), with(3, 3, None), with(4, 4, Some(2)), with(5, 5, Some(5)), with(6, 2, Some(2))];
        let (peers, refused) = Peers::select(&overlay, all.clone());
        assert_eq!(peers.into_vec(), [all[0].clone(), all[3].clone(), all[4].clone()]);
        let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
        assert!(
            refused[0].contains("has no public key") && refused[1].contains("is that of node 192.0.2.2"),
            "{refused:?}"
        );
    }

    #[test]
    fn a_wrong_peer_does_not_disconnect_the_others() {
        let overlay = Overlay::new(definition()).unwrap();
        let good = peer("192.0.2.2", &["10.244.2.0/24", "fd44:0:0:2::/64"]);
        let last = peer("192.0.2.3", &["10.244.3.0/24", "fd44:0:0:3::/64"]);
        let own = peer("192.0.2.1", &["10.244.1.0/24", "fd44:0:0:1::/64"]);
        let wrong = [
            peer("192.0.2.2", &["10.244.2.0/24", "fd44:0:0:9::/64"]),
            peer("192.0.2.9", &["10.244.0.0/22", "fd44:0:0:9::/64"]),
            peer("fd00::1", &["10.244.9.0/24", "fd44:0:0:9::/64"]),
            peer("10.244.9.9", &["10.244.9.0/24", "fd44:0:0:9::/64"]),
            peer("224.0.0.1", &["10.244.9.0/24", "fd44:0:0:9::/64"]),
            peer("192.0.2.9", &["10.244.1.128/25", "fd44:0:0:9::/64"]),
            peer("192.0.2.9", &["10.244.9.0/24", "fd44:0:0:2::/64"]),
            peer("192.0.2.9", &["0.0.0.0/0", "fd44:0:0:9::/64"]),
            peer("192.0.2.9", &["10.244.9.0/24"]),
        ];
        let count = wrong.len();
        let all = [good.clone()].into_iter().chain(wrong).chain([own, last.clone()]);
        let (peers, refused) = Peers::select(&overlay, all);
        assert_eq!(peers.iter().collect::<Vec<_>>(), [&good, &last]);
        assert_eq!(refused.len(), count, "{refused:?}");
        let own = |n: usize| peer("192.0.2.2", &[&format!("10.244.{n}.0/24"), &format!("fd44:0:0:{n}::/64")]);
        let (peers, refused) = Peers::select(&overlay, (10..30).map(own));
        assert_eq!((peers.len(), refused.len()), (SUBNETS_OF_NODE_MAX, 20 - SUBNETS_OF_NODE_MAX));
        let twice = [good, peer("192.0.2.2", &["10.244.9.0/24", "fd44:0:0:9::/64"])];
        assert_eq!(Peers::select(&overlay, twice).0.len(), 2);
    }
}
