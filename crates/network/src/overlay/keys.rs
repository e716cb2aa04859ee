//! Keys and values in etcd.
//!
//! `<prefix>/<network>/subnets/<number>` is the node that has the subnet with a number, as a `Peer` in JSON. The number is that
//! of the subnet within the network's range; with two families it is the same in both, so that one key reserves both.

use std::net::IpAddr;

use ::overlay::{EtcdSettings, Peer, PublicKey, Settings};
use etcd::Entry;
use rtnl::subnet::{Subnet, address, number};

/// Longest value of a key in bytes.
const VALUE_MAX: usize = 1024;

/// Names of the keys of one overlay.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    subnets: String,
    networks: Vec<Subnet>,
    prefixes: Vec<u8>,
}

impl Keys {
    pub(super) fn new(settings: &Settings, etcd: &EtcdSettings) -> Self {
        Self {
            subnets: format!("{}/{}/subnets/", etcd.prefix, settings.name),
            networks: settings.networks.clone(),
            prefixes: etcd.subnet_prefixes.clone(),
        }
    }

    /// Returns the prefix of the keys of subnets.
    pub(super) fn subnets(&self) -> &str {
        &self.subnets
    }

    /// Returns the key of the subnets with a number.
    pub(super) fn subnet(&self, index: u32) -> String {
        format!("{}{index}", self.subnets)
    }

    /// Returns how many nodes the network has subnets for.
    pub(super) fn count(&self) -> u32 {
        let bits = self.networks.iter().zip(&self.prefixes).map(|(network, prefix)| prefix - network.prefix);
        1 << bits.min().unwrap_or_default().min(16)
    }

    /// Returns the subnets with a number, one of each family.
    pub(super) fn subnets_of(&self, index: u32) -> Vec<Subnet> {
        let subnet = |(network, prefix): (&Subnet, &u8)| {
            let host = rtnl::subnet::bits(network.address) - prefix;
            let first = number(network.network()) + (u128::from(index) << host);
            Subnet { address: address(first, network.address), prefix: *prefix }
        };
        self.networks.iter().zip(&self.prefixes).map(subnet).collect()
    }

    /// Returns the number of a key, whatever its value is; `None` for a key that no node of this network creates.
    pub(super) fn index(&self, entry: &Entry) -> Option<u32> {
        let key = std::str::from_utf8(&entry.key).ok()?;
        let text = key.strip_prefix(&self.subnets)?;
        text.parse().ok().filter(|index: &u32| *index < self.count() && text == index.to_string())
    }

    /// Parses a key and its value; `None` unless a node of this network wrote it, with the same ranges and lengths.
    pub(super) fn parse(&self, entry: &Entry) -> Option<Claim> {
        let index = self.index(entry)?;
        if entry.value.len() > VALUE_MAX {
            return None;
        }
        let peer: Peer = serde_json::from_slice(&entry.value).ok()?;
        let is_of_key = peer.subnets == self.subnets_of(index);
        is_of_key.then_some(Claim {
            index,
            node: peer.node,
            key: peer.key,
            revision: entry.mod_revision,
            lease: entry.lease,
        })
    }

    /// Returns the value of a key.
    pub(super) fn value(&self, index: u32, node: NodeIdentity) -> Vec<u8> {
        let peer = Peer { node: node.address, subnets: self.subnets_of(index), key: node.key };
        serde_json::to_vec(&peer).unwrap_or_default()
    }
}

/// What other nodes need to know of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeIdentity {
    pub(super) address: IpAddr,
    /// Public key, if the overlay is encrypted.
    pub(super) key: Option<PublicKey>,
}

/// A node's claim of the subnets with a number, as it is in etcd.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) index: u32,
    pub(super) node: IpAddr,
    pub(super) key: Option<PublicKey>,
    pub(super) revision: i64,
    pub(super) lease: i64,
}

impl Claim {
    pub(super) fn identity(&self) -> NodeIdentity {
        NodeIdentity { address: self.node, key: self.key }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn keys() -> Keys {
        let config = json!({"name": "n", "vni": 7, "network": ["10.244.0.0/16", "fd44::/48"],
            "etcd": {"endpoints": ["http://192.0.2.9:2379"]}});
        let settings = Settings::parse(config.as_object().unwrap()).unwrap();
        let overlay::Source::Etcd(etcd) = settings.source.clone() else { panic!("etcd") };
        Keys::new(&settings, &etcd)
    }

    #[test]
    fn numbers_are_subnets_of_both_families() {
        let keys = keys();
        let texts: Vec<String> = keys.subnets_of(255).iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.244.255.0/24", "fd44:0:0:ff::/64"]);
        assert_eq!((keys.count(), keys.subnet(3).as_str()), (256, "/pinion/overlay/n/subnets/3"));
    }

    #[test]
    fn only_what_a_node_wrote_is_a_claim() {
        let keys = keys();
        let node: IpAddr = "192.0.2.2".parse().unwrap();
        let entry = |key: &str, value: &[u8]| Entry {
            key: key.as_bytes().to_vec(),
            value: value.to_vec(),
            mod_revision: 4,
            lease: 5,
        };
        let identity = |key| NodeIdentity { address: node, key };
        let value = keys.value(3, identity(Some(PublicKey([7; 32]))));
        let claim = keys.parse(&entry(&keys.subnet(3), &value)).unwrap();
        assert_eq!((claim.index, claim.node, claim.key), (3, node, Some(PublicKey([7; 32]))));
        let value = keys.value(3, identity(None));
        assert_eq!(keys.parse(&entry(&keys.subnet(3), &value)).unwrap().key, None);
        for (key, value) in [
            ("/pinion/overlay/n/subnets/256", &value[..]),
            ("/pinion/overlay/n/subnets/03", &value),
            ("/pinion/overlay/n/subnets/x", &value),
            ("/pinion/overlay/other/3", &value),
            ("/pinion/overlay/n/subnets/4", &value),
            ("/pinion/overlay/n/subnets/3", b"{}"),
            (
                "/pinion/overlay/n/subnets/3",
                br#"{"node": "192.0.2.2", "subnets": ["10.244.3.0/24", "fd44:0:0:3::/64"], "publicKey": "x"}"#,
            ),
            ("/pinion/overlay/n/subnets/3", b"\xff"),
        ] {
            assert!(keys.parse(&entry(key, value)).is_none(), "{key}");
        }
    }
}
