//! Our table, one for IPv4 and one for IPv6. No other table is read or changed.
//!
//! ```text
//! table ip pinion {
//!     set bridges      { type ifname; }                      # bridges of pods
//!     set named        { type ifname; }                      # those of named networks
//!     set internal     { type ifname; }                      # those without connections to anything else
//!     set same         { type ifname . ifname; }             # each of `named`, twice
//!     set pods         { type ipv4_addr; flags interval; }   # their subnets
//!     set masquerade   { type ipv4_addr; flags interval; }   # subnets whose outgoing packets are masqueraded
//!     map ports        { type inet_proto . inet_service : ipv4_addr . inet_service; }
//!     map ports_at     { type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service; }
//!
//!     chain martians   { type filter hook prerouting priority -300; policy accept;
//!         iifname @bridges ip daddr & 255.0.0.0 == 127.0.0.0 drop }
//!     chain forward    { type filter hook forward priority 0; policy accept;   # only with named networks
//!         iifname . oifname @same accept
//!         iifname @internal drop
//!         oifname @internal drop
//!         ct status & dnat != 0 accept
//!         iifname @named oifname @bridges drop
//!         iifname @bridges oifname @named drop }
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
//! Adding or deleting a pod's port changes one element of a map and takes about 5 µs regardless of their number.
//!
//! The chain `martians` makes `route_localnet` on a bridge safe. With `route_localnet` the node's own 127.0.0.1 reaches
//! pods through their host ports; without this chain pods could reach services on the node's loopback interface
//! (CVE-2020-8558). IPv6 has no `route_localnet`, hence no rules for loopback: a host port is not reachable on `::1`.

use super::{
    Family, Table, Transaction,
    element::{Element, add_elements},
};
use rtnl::netlink::Batch;
use rtnl::nft::expression::{self as e, FIRST};

const NEWTABLE: u16 = 0;
const DELTABLE: u16 = 2;
const NEWCHAIN: u16 = 3;
const NEWRULE: u16 = 6;
const NEWSET: u16 = 9;
const APPEND: u16 = 0x800;

/// Creates the table with its elements. An existing table is replaced in the same transaction, so no packet meets an
/// incomplete one.
pub(crate) fn create(table: &Table, elements: &[Element]) -> Transaction {
    let mut t = delete_table(table);
    t.create(NEWTABLE, |_| {});
    sets(&mut t, table.family);
    chains(&mut t);
    rules(&mut t, table.family);
    // Packets of nodes without named networks do not pass through this chain.
    if elements.iter().any(|element| element.is_in("named")) {
        forward_chain(&mut t);
        forward_rules(&mut t);
    }
    add_elements(&mut t, elements);
    t
}

/// Deletes the table; succeeds if it does not exist.
pub(crate) fn delete_table(table: &Table) -> Transaction {
    let mut t = Transaction::new(table);
    // The kernel refuses to delete a missing table, but not to create an existing one (without NLM_F_EXCL).
    t.create(NEWTABLE, |_| {});
    t.add(DELTABLE, 0, |_| {});
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
    // The type of a concatenation has six bits for each part.
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
        Set { name: "named", flags: 0, key: (IFNAME, name_length), data: None },
        Set { name: "internal", flags: 0, key: (IFNAME, name_length), data: None },
        Set { name: "same", flags: 0, key: ((IFNAME << 6) | IFNAME, 2 * name_length), data: None },
        Set { name: "pods", flags: INTERVAL, key: address, data: None },
        Set { name: "masquerade", flags: INTERVAL, key: address, data: None },
        Set { name: "ports", flags: MAP, key: ((PROTOCOL << 6) | PORT, 8), data: target },
        Set { name: "ports_at", flags: MAP, key: ((((kind << 6) | PROTOCOL) << 6) | PORT, length + 8), data: target },
    ];
    for (id, set) in (1u32..).zip(&all) {
        t.create(NEWSET, |m| {
            m.text(2, set.name);
            m.big_endian(3, set.flags);
            m.big_endian(4, set.key.0);
            m.big_endian(5, set.key.1);
            if let Some((kind, length)) = set.data {
                m.big_endian(6, kind);
                m.big_endian(7, length);
            }
            m.big_endian(10, id);
            if set.key.0 == IFNAME {
                // For `nft list`: user data which states that the key is in host byte order (tag, length, value 1).
                let [a, b, c, d] = 1u32.to_ne_bytes();
                m.bytes(13, &[0, 4, a, b, c, d]);
            }
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
        m.text(3, "node_ports");
    });
    for (name, kind, hook, priority) in hooked {
        hooked_chain(t, name, kind, hook, priority);
    }
}

fn hooked_chain(t: &mut Transaction, name: &str, kind: &str, hook: u32, priority: i32) {
    t.create(NEWCHAIN, |m| {
        m.text(3, name);
        m.nest(4, |m| {
            m.big_endian(1, hook);
            m.big_endian(2, i32::cast_unsigned(priority));
        });
        m.text(7, kind);
    });
}

fn forward_chain(t: &mut Transaction) {
    const FORWARD: u32 = 2;
    hooked_chain(t, "forward", "filter", FORWARD, 0);
}

fn rule(t: &mut Transaction, chain: &str, expressions: impl FnOnce(&mut Batch)) {
    t.add(NEWRULE, rtnl::netlink::CREATE | APPEND, |m| {
        m.text(2, chain);
        m.nest(4, expressions);
    });
}

/// Base of `payload` for the IP header.
const NETWORK: u32 = 1;
/// Base of `payload` for the header of TCP, UDP or SCTP.
const TRANSPORT: u32 = 2;

fn source(m: &mut Batch, family: Family) {
    let (length, at, _) = family.layout();
    e::payload(m, NETWORK, at, length, FIRST);
}

fn destination(m: &mut Batch, family: Family) {
    let (length, _, at) = family.layout();
    e::payload(m, NETWORK, at, length, FIRST);
}

fn rules(t: &mut Transaction, family: Family) {
    if family == Family::V4 {
        loopback_rules(t);
    }
    node_port_rules(t, family);
    masquerade_rules(t, family);
}

/// Separates named networks from other networks of pods. Connections to published ports are translated, and pass.
fn forward_rules(t: &mut Transaction) {
    /// Registers of an interface's name.
    const NAME_WORDS: u32 = 4;
    rule(t, "forward", |m| {
        e::meta(m, e::META_IIFNAME, FIRST);
        e::meta(m, e::META_OIFNAME, FIRST + NAME_WORDS);
        e::is_in(m, "same");
        e::verdict(m, e::ACCEPT, None);
    });
    for key in [e::META_IIFNAME, e::META_OIFNAME] {
        rule(t, "forward", |m| {
            e::meta(m, key, FIRST);
            e::is_in(m, "internal");
            e::verdict(m, e::DROP, None);
        });
    }
    rule(t, "forward", |m| {
        e::destination_translated(m);
        e::verdict(m, e::ACCEPT, None);
    });
    for (incoming, outgoing) in [("named", "bridges"), ("bridges", "named")] {
        rule(t, "forward", |m| {
            e::meta(m, e::META_IIFNAME, FIRST);
            e::is_in(m, incoming);
            e::meta(m, e::META_OIFNAME, FIRST);
            e::is_in(m, outgoing);
            e::verdict(m, e::DROP, None);
        });
    }
}

fn loopback_rules(t: &mut Transaction) {
    const DROP: i32 = 0;
    rule(t, "martians", |m| {
        e::meta(m, e::META_IIFNAME, FIRST);
        e::is_in(m, "bridges");
        destination(m, Family::V4);
        e::mask(m, &[255, 0, 0, 0]);
        e::equals(m, &[127, 0, 0, 0]);
        e::verdict(m, DROP, None);
    });
    rule(t, "postrouting", |m| {
        destination(m, Family::V4);
        e::is_in(m, "pods");
        source(m, Family::V4);
        e::mask(m, &[255, 0, 0, 0]);
        e::equals(m, &[127, 0, 0, 0]);
        e::destination_translated(m);
        e::masquerade(m);
    });
}

fn node_port_rules(t: &mut Transaction, family: Family) {
    const RTN_LOCAL: u32 = 2;
    const JUMP: i32 = -3;
    let protocol_and_port = |m: &mut Batch, register: u32| {
        e::meta(m, e::META_L4PROTO, register);
        e::payload(m, TRANSPORT, 2, 2, register + 1);
    };
    let after_address = FIRST + family.words();
    rule(t, "node_ports", |m| {
        destination(m, family);
        protocol_and_port(m, after_address);
        e::map(m, "ports_at");
        e::destination_nat(m, family.number(), after_address);
    });
    rule(t, "node_ports", |m| {
        protocol_and_port(m, FIRST);
        e::map(m, "ports");
        e::destination_nat(m, family.number(), after_address);
    });
    for chain in ["prerouting", "output"] {
        rule(t, chain, |m| {
            e::destination_type(m);
            e::equals(m, &RTN_LOCAL.to_ne_bytes());
            e::verdict(m, JUMP, Some("node_ports"));
        });
    }
}

fn masquerade_rules(t: &mut Transaction, family: Family) {
    rule(t, "postrouting", |m| {
        destination(m, family);
        e::is_in(m, "pods");
        source(m, family);
        e::is_in(m, "pods");
        e::destination_translated(m);
        e::masquerade(m);
    });
    let (multicast_mask, multicast) = match family {
        Family::V4 => (0xf0, 0xe0),
        Family::V6 | Family::Inet | Family::Bridge => (0xff, 0xff),
    };
    let head = |byte: u8| {
        let mut bytes = vec![0; family.words() as usize * 4];
        bytes[0] = byte;
        bytes
    };
    rule(t, "postrouting", |m| {
        source(m, family);
        e::is_in(m, "masquerade");
        destination(m, family);
        e::is_not_in(m, "masquerade");
        e::mask(m, &head(multicast_mask));
        e::differs(m, &head(multicast));
        e::masquerade(m);
    });
}
