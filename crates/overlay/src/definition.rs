//! The definition of an overlay on one node: identifier, port, address ranges, and the node's own part of them.

use std::net::IpAddr;

use rtnl::subnet::{Subnet, bits};
use serde::{Deserialize, Serialize};

use crate::Error;

/// UDP port that IANA assigned to VXLAN.
pub const PORT: u16 = 4789;
/// Ports of encrypted overlays, each of which needs one of its own on a node: above those that the kernel gives to sockets
/// by default (`net.ipv4.ip_local_port_range`).
const ENCRYPTED_PORTS: std::ops::RangeInclusive<u16> = 61_000..=65_535;

/// Returns the UDP port of an overlay unless it is configured.
#[must_use]
pub fn default_port(id: u32, encrypted: bool) -> u16 {
    let (first, last) = (*ENCRYPTED_PORTS.start(), *ENCRYPTED_PORTS.end());
    let offset = u16::try_from(id % u32::from(last - first)).unwrap_or_default();
    if encrypted { first + offset } else { PORT }
}
/// VXLAN network identifiers have 24 bits.
const ID_MAX: u32 = (1 << 24) - 1;
/// Shortest MTU that IPv6 permits on a link (RFC 8200, section 5), and the shortest here for both families.
pub(crate) const MTU_MIN: u32 = 1280;
const MTU_MAX: u32 = 65_535;

/// Parts of an overlay before they are checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// Name of the network.
    pub name: String,
    /// VXLAN network identifier.
    pub id: u32,
    /// UDP port of all nodes.
    pub port: u16,
    /// Address of this node, from which packets are sent to other nodes.
    pub node: IpAddr,
    /// Address ranges of the whole network: one, or one of each family.
    pub networks: Vec<Subnet>,
    /// Subnets of this node, one within each of `networks`.
    pub subnets: Vec<Subnet>,
    /// MTU of pods; `None` for that of the node's link without the headers of the tunnel.
    pub mtu: Option<u32>,
    /// Whether packets of pods that leave the network get the address of the node.
    pub masquerades: bool,
    /// Whether packets between nodes are encrypted, by WireGuard.
    #[serde(default)]
    pub encrypted: bool,
}

/// An overlay on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    pub(crate) name: String,
    pub(crate) id: u32,
    pub(crate) port: u16,
    pub(crate) node: IpAddr,
    pub(crate) networks: Vec<Subnet>,
    pub(crate) subnets: Vec<Subnet>,
    pub(crate) mtu: Option<u32>,
    pub(crate) masquerades: bool,
    pub(crate) encrypted: bool,
}

impl Overlay {
    /// Checks a definition.
    ///
    /// # Errors
    /// [`Error::Config`] with the value that is not valid.
    pub fn new(definition: Definition) -> Result<Self, Error> {
        let Definition { name, id, port, node, networks, subnets, mtu, masquerades, encrypted } = definition;
        if id == 0 || id > ID_MAX {
            return Err(Error::config("vni", format!("{id} is not from 1 to {ID_MAX}")));
        }
        if port == 0 {
            return Err(Error::config("port", "must not be zero"));
        }
        if node.is_unspecified() || node.is_multicast() || node.is_loopback() {
            return Err(Error::config("node", format!("{node} is not an address that other nodes can reach")));
        }
        if let Some(mtu) = mtu.filter(|mtu| !(MTU_MIN..=MTU_MAX).contains(mtu)) {
            return Err(Error::config("mtu", format!("{mtu} is not from {MTU_MIN} to {MTU_MAX}")));
        }
        check_networks(&networks)?;
        check_subnets(&networks, &subnets)?;
        if let Some(network) = networks.iter().find(|network| network.contains(node)) {
            return Err(Error::config("network", format!("{network} contains the address of the node, {node}")));
        }
        Ok(Self { name, id, port, node, networks, subnets, mtu, masquerades, encrypted })
    }

    /// Returns the address ranges of the whole network.
    #[must_use]
    pub fn networks(&self) -> &[Subnet] {
        &self.networks
    }

    /// Returns the subnets of this node.
    #[must_use]
    pub fn subnets(&self) -> &[Subnet] {
        &self.subnets
    }

    /// Returns the address of this node.
    #[must_use]
    pub fn node(&self) -> IpAddr {
        self.node
    }

    /// Returns the VXLAN network identifier.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the bytes that the tunnel adds to each packet: Ethernet and VXLAN headers, or header and authentication tag of
    /// WireGuard; the UDP header, and the outer IP header.
    pub(crate) fn overhead(&self) -> u32 {
        let tunnel = if self.encrypted { 16 + 16 } else { 14 + 8 };
        tunnel + 8 + if self.node.is_ipv4() { 20 } else { 40 }
    }
}

fn check_networks(networks: &[Subnet]) -> Result<(), Error> {
    match networks {
        [_] => {}
        [first, second] if first.address.is_ipv4() != second.address.is_ipv4() => {}
        [_, _] => return Err(Error::config("network", "has two ranges of one family; give one of each family")),
        _ => {
            return Err(Error::config(
                "network",
                format!("has {} ranges; give one, or one of each family", networks.len()),
            ));
        }
    }
    for network in networks {
        if network.address != network.network() || network.prefix == 0 || network.prefix + 2 > bits(network.address) {
            return Err(Error::config("network", format!("{network} is not a range such as 10.244.0.0/16")));
        }
    }
    Ok(())
}

/// Checks that there is one subnet within each network.
pub(crate) fn check_subnets(networks: &[Subnet], subnets: &[Subnet]) -> Result<(), Error> {
    if subnets.len() != networks.len() {
        let reason = format!("{} subnets of a node for {} ranges of the network", subnets.len(), networks.len());
        return Err(Error::config("subnet", reason));
    }
    for (network, subnet) in networks.iter().zip(subnets) {
        // The first address is that of the endpoint, the second the gateway of the pods, the last a broadcast address.
        let has_room = subnet.prefix + 2 <= bits(subnet.address);
        if subnet.address != subnet.network() || !has_room {
            return Err(Error::config("subnet", format!("{subnet} is not a subnet such as 10.244.1.0/24")));
        }
        if !network.contains(subnet.address) || subnet.prefix < network.prefix {
            return Err(Error::config("subnet", format!("{subnet} is not within the network {network}")));
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn definition() -> Definition {
        Definition {
            name: "n".into(),
            id: 7,
            port: PORT,
            node: "192.0.2.1".parse().unwrap(),
            networks: vec!["10.244.0.0/16".parse().unwrap(), "fd44::/48".parse().unwrap()],
            subnets: vec!["10.244.1.0/24".parse().unwrap(), "fd44:0:0:1::/64".parse().unwrap()],
            mtu: None,
            masquerades: true,
            encrypted: false,
        }
    }

    #[test]
    fn invalid_definitions_are_refused() {
        let subnet = |text: &str| vec![text.parse::<Subnet>().unwrap()];
        let only =
            |network: &str, own: &str| Definition { networks: subnet(network), subnets: subnet(own), ..definition() };
        assert!(Overlay::new(definition()).is_ok());
        assert!(Overlay::new(only("10.244.0.0/16", "10.244.255.0/24")).is_ok());
        let cases = [
            (Definition { id: 0, ..definition() }, "vni: 0 is not"),
            (Definition { id: 1 << 24, ..definition() }, "vni: 16777216 is not"),
            (Definition { port: 0, ..definition() }, "port"),
            (Definition { node: "127.0.0.1".parse().unwrap(), ..definition() }, "node: 127.0.0.1"),
            (Definition { node: "10.244.3.1".parse().unwrap(), ..definition() }, "contains the address of the node"),
            (Definition { mtu: Some(1279), ..definition() }, "mtu: 1279"),
            (Definition { networks: vec![], ..definition() }, "has 0 ranges"),
            (Definition { subnets: vec![], ..definition() }, "0 subnets of a node for 2"),
            (only("10.244.0.1/16", "10.244.1.0/24"), "10.244.0.1/16 is not a range"),
            (only("0.0.0.0/0", "10.244.1.0/24"), "0.0.0.0/0 is not a range"),
            (only("10.244.0.0/16", "10.245.1.0/24"), "not within"),
            (only("10.244.0.0/16", "10.244.0.0/15"), "not within"),
            (only("10.244.0.0/16", "10.244.1.1/24"), "not a subnet"),
            (only("10.244.0.0/16", "10.244.1.0/31"), "not a subnet"),
            (only("10.244.0.0/16", "fd44::/64"), "not within"),
        ];
        for (definition, expected) in cases {
            let error = Overlay::new(definition).unwrap_err().to_string();
            assert!(error.contains(expected), "{error:?} has {expected:?}");
        }
    }
}
