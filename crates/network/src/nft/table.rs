//! Our table, one for IPv4 and one for IPv6. Nothing outside it is touched or read.
//!
//! ```text
//! table ip pinion {
//!     set bridges      { type ifname; }                      # bridges of pods
//!     set pods         { type ipv4_addr; flags interval; }   # their subnets
//!     set masquerade   { type ipv4_addr; flags interval; }   # those that leave under the node's address
//!     map ports        { type inet_proto . inet_service : ipv4_addr . inet_service; }
//!     map ports_at     { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service; }
//!
//!     chain martians   { type filter hook prerouting priority -300; policy accept;
//!         iifname @bridges ip daddr & 255.0.0.0 == 127.0.0.0 drop }
//!     chain node_ports {
//!         dnat ip to ip daddr . meta l4proto . th dport map @ports_at
//!         dnat ip to meta l4proto . th dport map @ports }
//!     chain prerouting { type nat hook prerouting priority -100; policy accept;
//!         fib daddr type local jump node_ports }
//!     chain output     { type nat hook output priority -100; policy accept;
//!         fib daddr type local jump node_ports }
//!     chain postrouting { type nat hook postrouting priority 100; policy accept;
//!         ip daddr @pods ip saddr & 255.0.0.0 == 127.0.0.0 ct status & dnat != 0 masquerade
//!         ip daddr @pods ip saddr @pods ct status & dnat != 0 masquerade
//!         ip saddr @masquerade ip daddr != @masquerade ip daddr & 240.0.0.0 != 224.0.0.0 masquerade }
//! }
//! ```
//! A pod's port is one element of a map: five microseconds to add or to delete, however many there are.
//!
//! `martians` is what makes `route_localnet` on a bridge safe: with it the node's own 127.0.0.1 reaches pods through their
//! node ports, and without the rule pods would reach what listens on the node's loopback (CVE-2020-8558).
//! IPv6 has no `route_localnet`, hence no rules for loopback: a node port does not answer on `::1`.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    expression::{self as e, FIRST},
    transaction::{Transaction, header, kind},
};
use crate::{
    attachment::Protocol,
    netlink::{Batch, Refusal, Socket, attributes, find},
    subnet::{Subnet, address, number, octets},
};

/// The table's name.
pub(crate) const TABLE: &str = "pinion";

const NEWTABLE: u16 = 0;
const DELTABLE: u16 = 2;
const NEWCHAIN: u16 = 3;
const NEWRULE: u16 = 6;
const NEWSET: u16 = 9;
const NEWSETELEM: u16 = 12;
const GETSETELEM: u16 = 13;
const DELSETELEM: u16 = 14;
const APPEND: u16 = 0x800;

/// As many elements go into one message: the length of a list is told in 16 bits.
const CHUNK: usize = 256;
const SETS: [&str; 5] = ["bridges", "pods", "masquerade", "ports", "ports_at"];

/// IPv4 or IPv6, and where addresses are in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }

    /// Length of an address, offsets of source and destination.
    fn layout(self) -> (u32, u32, u32) {
        match self {
            Self::V4 => (4, 12, 16),
            Self::V6 => (16, 8, 24),
        }
    }

    fn words(self) -> u32 {
        self.layout().0 / 4
    }

    /// Numbers of nft's data types, for those who list the table.
    fn address_type(self) -> u32 {
        match self {
            Self::V4 => 7,
            Self::V6 => 8,
        }
    }
}

/// A port of the node that leads to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) protocol: Protocol,
    pub(crate) host_ip: Option<IpAddr>,
    pub(crate) host_port: u16,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

/// An element: its set, whether it ends an interval, key and data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Element {
    set: &'static str,
    end: bool,
    key: Vec<u8>,
    data: Vec<u8>,
}

fn padded_port(port: u16) -> [u8; 4] {
    let bytes = port.to_be_bytes();
    [bytes[0], bytes[1], 0, 0]
}

/// Elements of the maps.
pub(crate) fn port_elements(mappings: &[Mapping]) -> Vec<Element> {
    let element = |mapping: &Mapping| {
        let mut key = mapping.host_ip.map(octets).unwrap_or_default();
        key.extend([mapping.protocol.number(), 0, 0, 0]);
        key.extend(padded_port(mapping.host_port));
        let mut data = octets(mapping.address);
        data.extend(padded_port(mapping.port));
        Element { set: if mapping.host_ip.is_some() { "ports_at" } else { "ports" }, end: false, key, data }
    };
    mappings.iter().map(element).collect()
}

/// Elements of a set of subnets, each a beginning and an end, in the order of addresses: the kernel takes a beginning
/// without its end for an interval that overlaps whatever comes later. Subnets within others are left out.
pub(crate) fn subnet_elements(set: &'static str, subnets: &[Subnet]) -> Vec<Element> {
    let within = |subnet: &Subnet, other: &Subnet| other.prefix < subnet.prefix && other.contains(subnet.address);
    let mut outer: Vec<&Subnet> = subnets.iter().filter(|s| !subnets.iter().any(|other| within(s, other))).collect();
    outer.sort_by_key(|subnet| number(subnet.network()));
    outer.dedup_by_key(|subnet| number(subnet.network()));
    let mut elements = Vec::with_capacity(outer.len() * 2);
    for subnet in outer {
        elements.push(Element { set, end: false, key: octets(subnet.network()), data: Vec::new() });
        let behind = number(subnet.last()).checked_add(1).filter(|n| subnet.address.is_ipv6() || *n <= u32::MAX.into());
        if let Some(behind) = behind {
            elements.push(Element { set, end: true, key: octets(address(behind, subnet.address)), data: Vec::new() });
        }
    }
    elements
}

/// Elements of the set of bridges.
pub(crate) fn bridge_elements<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Element> {
    let padded = |name: &str| {
        let mut key = name.as_bytes().to_vec();
        key.resize(e::NAME, 0);
        Element { set: "bridges", end: false, key, data: Vec::new() }
    };
    names.map(padded).collect()
}

/// Adds the table anew, with its elements; one that is there is replaced in the same transaction, so no packet meets a
/// half-made one.
pub(crate) fn create(family: Family, elements: &[Element]) -> Transaction {
    let mut t = delete_table(family);
    t.create(NEWTABLE, |m| m.text(1, TABLE));
    sets(&mut t, family);
    chains(&mut t);
    rules(&mut t, family);
    add_elements(&mut t, elements);
    t
}

/// Deletes the table if it is there.
pub(crate) fn delete_table(family: Family) -> Transaction {
    let mut t = Transaction::new(family.number());
    // To delete what is not there is refused; to create what is there is not.
    t.create(NEWTABLE, |m| m.text(1, TABLE));
    t.add(DELTABLE, 0, |m| m.text(1, TABLE));
    t
}

struct Set {
    name: &'static str,
    flags: u32,
    key: (u32, u32),
    data: Option<(u32, u32)>,
}

fn sets(t: &mut Transaction, family: Family) {
    const INTERVAL: u32 = 4;
    const MAP: u32 = 8;
    // Types of a concatenation: six bits each.
    const PROTOCOL: u32 = 12;
    const PORT: u32 = 13;
    const IFNAME: u32 = 41;
    let (length, ..) = family.layout();
    let kind = family.address_type();
    let target = Some(((kind << 6) | PORT, length + 4));
    let address = (kind, length);
    let name_length = u32::try_from(e::NAME).expect("16");
    let all = [
        Set { name: "bridges", flags: 0, key: (IFNAME, name_length), data: None },
        Set { name: "pods", flags: INTERVAL, key: address, data: None },
        Set { name: "masquerade", flags: INTERVAL, key: address, data: None },
        Set { name: "ports", flags: MAP, key: ((PROTOCOL << 6) | PORT, 8), data: target },
        Set { name: "ports_at", flags: MAP, key: ((((kind << 6) | PROTOCOL) << 6) | PORT, length + 8), data: target },
    ];
    for (id, set) in (1u32..).zip(&all) {
        t.create(NEWSET, |m| {
            m.text(1, TABLE);
            m.text(2, set.name);
            m.big_endian(3, set.flags);
            m.big_endian(4, set.key.0);
            m.big_endian(5, set.key.1);
            if let Some((kind, length)) = set.data {
                m.big_endian(6, kind);
                m.big_endian(7, length);
            }
            m.big_endian(10, id);
        });
    }
}

fn chains(t: &mut Transaction) {
    const PREROUTING: u32 = 0;
    const OUTPUT: u32 = 3;
    const POSTROUTING: u32 = 4;
    let hooked = [
        ("martians", "filter", PREROUTING, -300),
        ("prerouting", "nat", PREROUTING, -100),
        ("output", "nat", OUTPUT, -100),
        ("postrouting", "nat", POSTROUTING, 100),
    ];
    t.create(NEWCHAIN, |m| {
        m.text(1, TABLE);
        m.text(3, "node_ports");
    });
    for (name, kind, hook, priority) in hooked {
        t.create(NEWCHAIN, |m| {
            m.text(1, TABLE);
            m.text(3, name);
            m.nest(4, |m| {
                m.big_endian(1, hook);
                m.big_endian(2, i32::cast_unsigned(priority));
            });
            m.text(7, kind);
        });
    }
}

fn rule(t: &mut Transaction, chain: &str, expressions: impl FnOnce(&mut Batch)) {
    t.add(NEWRULE, crate::netlink::CREATE | APPEND, |m| {
        m.text(1, TABLE);
        m.text(2, chain);
        m.nest(4, expressions);
    });
}

fn rules(t: &mut Transaction, family: Family) {
    const NETWORK: u32 = 1;
    const TRANSPORT: u32 = 2;
    const RTN_LOCAL: u32 = 2;
    const DROP: i32 = 0;
    const JUMP: i32 = -3;
    let (length, source_at, destination_at) = family.layout();
    let source = |m: &mut Batch| e::payload(m, NETWORK, source_at, length, FIRST);
    let destination = |m: &mut Batch| e::payload(m, NETWORK, destination_at, length, FIRST);
    let protocol_and_port = |m: &mut Batch, register: u32| {
        e::meta(m, e::META_L4PROTO, register);
        e::payload(m, TRANSPORT, 2, 2, register + 1);
    };
    let port_register = FIRST + family.words();

    if family == Family::V4 {
        rule(t, "martians", |m| {
            e::meta(m, e::META_IIFNAME, FIRST);
            e::is_in(m, "bridges");
            destination(m);
            e::mask(m, &[255, 0, 0, 0]);
            e::equals(m, &[127, 0, 0, 0]);
            e::verdict(m, DROP, None);
        });
        rule(t, "postrouting", |m| {
            destination(m);
            e::is_in(m, "pods");
            source(m);
            e::mask(m, &[255, 0, 0, 0]);
            e::equals(m, &[127, 0, 0, 0]);
            e::destination_translated(m);
            e::masquerade(m);
        });
    }
    rule(t, "node_ports", |m| {
        destination(m);
        protocol_and_port(m, port_register);
        e::map(m, "ports_at");
        e::destination_nat(m, family.number(), port_register);
    });
    rule(t, "node_ports", |m| {
        protocol_and_port(m, FIRST);
        e::map(m, "ports");
        e::destination_nat(m, family.number(), port_register);
    });
    for chain in ["prerouting", "output"] {
        rule(t, chain, |m| {
            e::destination_type(m);
            e::equals(m, &RTN_LOCAL.to_ne_bytes());
            e::verdict(m, JUMP, Some("node_ports"));
        });
    }
    rule(t, "postrouting", |m| {
        destination(m);
        e::is_in(m, "pods");
        source(m);
        e::is_in(m, "pods");
        e::destination_translated(m);
        e::masquerade(m);
    });
    rule(t, "postrouting", |m| {
        source(m);
        e::is_in(m, "masquerade");
        destination(m);
        e::is_not_in(m, "masquerade");
        let multicast: (&[u8], &[u8]) = match family {
            Family::V4 => (&[0xf0, 0, 0, 0], &[0xe0, 0, 0, 0]),
            Family::V6 => (
                &[0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                &[0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            ),
        };
        e::mask(m, multicast.0);
        e::differs(m, multicast.1);
        e::masquerade(m);
    });
}

/// Adds elements; one that is there with other data is refused (`EEXIST`).
pub(crate) fn add_elements(t: &mut Transaction, elements: &[Element]) {
    change_elements(t, NEWSETELEM, crate::netlink::CREATE, elements);
}

/// Deletes elements; one that is not there is refused (`ENOENT`).
pub(crate) fn delete_elements(t: &mut Transaction, elements: &[Element]) {
    change_elements(t, DELSETELEM, 0, elements);
}

fn change_elements(t: &mut Transaction, message: u16, flags: u16, elements: &[Element]) {
    const INTERVAL_END: u32 = 1;
    for set in SETS {
        let of_set: Vec<&Element> = elements.iter().filter(|element| element.set == set).collect();
        for chunk in of_set.chunks(CHUNK) {
            t.add(message, flags, |m| {
                m.text(1, TABLE);
                m.text(2, set);
                m.nest(3, |m| {
                    for element in chunk {
                        m.nest(1, |m| {
                            if element.end {
                                m.big_endian(3, INTERVAL_END);
                            }
                            m.nest(1, |m| m.bytes(1, &element.key));
                            if !element.data.is_empty() {
                                m.nest(2, |m| m.bytes(1, &element.data));
                            }
                        });
                    }
                });
            });
        }
    }
}

/// All elements the kernel has; `ENOENT` when the table is not there.
pub(crate) fn dump(socket: &mut Socket, family: Family) -> Result<BTreeSet<Element>, Refusal> {
    let mut elements = BTreeSet::new();
    for set in SETS {
        let mut batch = Batch::new();
        batch.message(kind(GETSETELEM), 0, &header(family.number()), |m| {
            m.text(1, TABLE);
            m.text(2, set);
        });
        socket.dump(batch, |_, body| {
            let list = body.get(4..).and_then(|attributes| find(attributes, 3)).unwrap_or_default();
            for (_, element) in attributes(list) {
                let value = |kind| find(element, kind).and_then(|v| find(v, 1)).unwrap_or_default().to_vec();
                let end = find(element, 3).is_some_and(|flags| flags.last().is_some_and(|f| f & 1 == 1));
                elements.insert(Element { set, end, key: value(1), data: value(2) });
            }
        })?;
    }
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_in_order_and_do_not_overlap() {
        let subnets = ["10.85.0.0/16", "10.5.0.0/24", "10.85.3.0/24", "255.255.255.0/24", "10.5.1.0/24", "10.5.0.0/24"];
        let subnets: Vec<Subnet> = subnets.iter().map(|text| text.parse().unwrap()).collect();
        let found: Vec<(bool, Vec<u8>)> =
            subnet_elements("pods", &subnets).into_iter().map(|e| (e.end, e.key)).collect();
        let expected: [(bool, [u8; 4]); 7] = [
            (false, [10, 5, 0, 0]),
            (true, [10, 5, 1, 0]),
            (false, [10, 5, 1, 0]),
            (true, [10, 5, 2, 0]),
            (false, [10, 85, 0, 0]),
            (true, [10, 86, 0, 0]),
            (false, [255, 255, 255, 0]),
        ];
        assert_eq!(found, expected.map(|(end, key)| (end, key.to_vec())));
    }
}
