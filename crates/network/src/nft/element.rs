//! Elements of our sets and maps: encoding, adding, deleting and dumping them.

use std::{collections::BTreeSet, net::IpAddr};

use super::{Table, Transaction};
use crate::port_mapping::Protocol;
use rtnl::nft::{expression::NAME, header, kind};
use rtnl::{
    netlink::{Batch, Refusal, Socket, attributes, find},
    subnet::{Subnet, address, number, octets},
};

const NEWSETELEM: u16 = 12;
const GETSETELEM: u16 = 13;
const DELSETELEM: u16 = 14;

/// Maximum elements per message: the length of a nested list has 16 bits.
const CHUNK: usize = 256;
const SETS: [&str; 8] = ["bridges", "named", "internal", "same", "pods", "masquerade", "ports", "ports_at"];

/// A port of the node that is mapped to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) protocol: Protocol,
    pub(crate) host_ip: Option<IpAddr>,
    pub(crate) host_port: u16,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

/// An element: its set, whether it is the end of an interval, its key and its data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Element {
    set: &'static str,
    end: bool,
    key: Vec<u8>,
    data: Vec<u8>,
}

impl Element {
    /// Reports whether it is an element of a set.
    pub(crate) fn is_in(&self, set: &str) -> bool {
        self.set == set
    }
}

fn padded_port(port: u16) -> [u8; 4] {
    let bytes = port.to_be_bytes();
    [bytes[0], bytes[1], 0, 0]
}

/// Returns the elements of the port maps.
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

/// Returns the elements of a set of subnets, a start and an end for each, in the order of addresses: without an end,
/// the kernel treats a start as an interval that overlaps all later ones. Subnets within other subnets are omitted.
pub(crate) fn subnet_elements(set: &'static str, subnets: &[Subnet]) -> Vec<Element> {
    let within = |subnet: &Subnet, other: &Subnet| other.prefix < subnet.prefix && other.contains(subnet.address);
    let mut outer: Vec<&Subnet> = subnets.iter().filter(|s| !subnets.iter().any(|other| within(s, other))).collect();
    outer.sort_by_key(|subnet| number(subnet.network()));
    outer.dedup_by_key(|subnet| number(subnet.network()));
    let mut elements = Vec::with_capacity(outer.len() * 2);
    for subnet in outer {
        elements.push(Element { set, end: false, key: octets(subnet.network()), data: Vec::new() });
        let after = number(subnet.last()).checked_add(1).filter(|n| subnet.address.is_ipv6() || *n <= u32::MAX.into());
        if let Some(after) = after {
            elements.push(Element { set, end: true, key: octets(address(after, subnet.address)), data: Vec::new() });
        }
    }
    elements
}

fn padded_name(name: &str) -> Vec<u8> {
    let mut key = name.as_bytes().to_vec();
    key.resize(NAME, 0);
    key
}

/// Returns the elements of a set of bridges.
pub(crate) fn bridge_elements<'a>(set: &'static str, names: impl Iterator<Item = &'a str>) -> Vec<Element> {
    names.map(|name| Element { set, end: false, key: padded_name(name), data: Vec::new() }).collect()
}

/// Returns the elements of the set that has each bridge as incoming and outgoing link.
pub(crate) fn same_bridge_elements<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Element> {
    let pair = |name| [padded_name(name), padded_name(name)].concat();
    names.map(|name| Element { set: "same", end: false, key: pair(name), data: Vec::new() }).collect()
}

/// Adds elements. The kernel refuses an element that exists with different data (`EEXIST`).
pub(crate) fn add_elements(t: &mut Transaction, elements: &[Element]) {
    change_elements(t, NEWSETELEM, rtnl::netlink::CREATE, elements);
}

/// Deletes elements. The kernel refuses to delete an element that does not exist (`ENOENT`).
pub(crate) fn delete_elements(t: &mut Transaction, elements: &[Element]) {
    change_elements(t, DELSETELEM, 0, elements);
}

fn change_elements(t: &mut Transaction, message: u16, flags: u16, elements: &[Element]) {
    const INTERVAL_END: u32 = 1;
    for set in SETS {
        let of_set: Vec<&Element> = elements.iter().filter(|element| element.set == set).collect();
        for chunk in of_set.chunks(CHUNK) {
            t.add(message, flags, |m| {
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

/// Returns all elements that the kernel has; fails with `ENOENT` if the table does not exist.
pub(crate) fn dump(socket: &mut Socket, table: &Table) -> Result<BTreeSet<Element>, Refusal> {
    let mut elements = BTreeSet::new();
    for set in SETS {
        let mut batch = Batch::new();
        batch.message(kind(GETSETELEM), 0, &header(table.family.number()), |m| {
            m.text(1, &table.name);
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
    fn intervals_are_sorted_and_do_not_overlap() {
        let subnets = ["10.85.0.0/16", "10.5.0.0/24", "10.85.3.0/24", "255.255.255.0/24", "10.5.1.0/24", "10.5.0.0/24"];
        let subnets: Vec<Subnet> = subnets.iter().map(|text| text.parse().unwrap()).collect();
        let actual: Vec<(bool, Vec<u8>)> =
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
        assert_eq!(actual, expected.map(|(end, key)| (end, key.to_vec())));
    }
}
