//! The rules:
//!
//! ```text
//! table ip cni_hostport {
//!     chain prerouting    { type nat hook prerouting priority -100; fib daddr type local jump hostports_all }
//!     chain output        { type nat hook output priority -100; fib daddr type local jump hostports_all }
//!     chain hostports_all { jump hostip_hostports; jump hostports }
//!     chain hostports     { tcp dport 8080 dnat to 10.1.0.2:80 comment "<container>" … }
//!     chain masquerading  { type nat hook postrouting priority 100;
//!         ip saddr 10.1.0.2 ip daddr 10.1.0.2 masquerade comment "<container>"
//!         ip saddr 127.0.0.1 ip daddr 10.1.0.2 masquerade comment "<container>" }
//! }
//! ```

use std::net::{IpAddr, Ipv4Addr};

use rtnl::{
    netlink::Batch,
    nft::{
        COMMENT_MAX, Family, Hook, Table, Transaction,
        expression::{self as e, FIRST},
    },
    subnet::octets,
};

use super::options::{Options, Port};

const HOST_PORTS: &str = "hostports";
/// Older versions of the reference plugin have rules with addresses of the node there.
const HOST_ADDRESS_PORTS: &str = "hostip_hostports";
const ALL: &str = "hostports_all";
const MASQUERADING: &str = "masquerading";
/// The chains with rules of containers.
pub(super) const CHAINS: [&str; 3] = [HOST_PORTS, HOST_ADDRESS_PORTS, MASQUERADING];

pub(super) fn table(family: Family) -> Table {
    Table { family, name: "cni_hostport".into() }
}

/// Returns the comment of a container's rules.
pub(super) fn comment(container: &str) -> &str {
    container.get(..COMMENT_MAX).unwrap_or(container)
}

/// Creates table and chains unless they exist.
pub(super) fn create(t: &mut Transaction, options: &Options) {
    t.create_table();
    for chain in [HOST_PORTS, HOST_ADDRESS_PORTS, ALL] {
        t.create_chain(chain, None);
    }
    t.flush_chain(ALL);
    for chain in [HOST_ADDRESS_PORTS, HOST_PORTS] {
        t.append_rule(ALL, "", |m| e::verdict(m, e::JUMP, Some(chain)));
    }
    for (chain, number) in [("prerouting", 0), ("output", 3)] {
        t.create_chain(chain, Some(Hook { kind: "nat", number, priority: -100 }));
        t.flush_chain(chain);
        t.append_rule(chain, "", |m| {
            const RTN_LOCAL: u32 = 2;
            e::destination_type(m);
            e::equals(m, &RTN_LOCAL.to_ne_bytes());
            e::verdict(m, e::JUMP, Some(ALL));
        });
    }
    if options.masquerades {
        t.create_chain(MASQUERADING, Some(Hook { kind: "nat", number: 4, priority: 100 }));
    }
}

/// Returns the ports that are mapped for an address: all but those on an address of the other family.
fn of_family(options: &Options, target: IpAddr) -> impl Iterator<Item = &Port> {
    options.ports.iter().filter(move |port| port.family.is_none_or(|ipv4| ipv4 == target.is_ipv4()))
}

/// Adds the rules of a container.
pub(super) fn map(t: &mut Transaction, options: &Options, target: IpAddr, container: &str) {
    let comment = comment(container);
    for port in of_family(options, target) {
        t.append_rule(HOST_PORTS, comment, |m| translate(m, port, target));
    }
    if !options.masquerades {
        return;
    }
    let source = if options.masquerades_all { None } else { Some(target) };
    t.append_rule(MASQUERADING, comment, |m| masquerade(m, source, target));
    if target.is_ipv4() && !options.masquerades_all {
        t.append_rule(MASQUERADING, comment, |m| masquerade(m, Some(Ipv4Addr::LOCALHOST.into()), target));
    }
}

fn translate(m: &mut Batch, port: &Port, target: IpAddr) {
    let family = Family::of(target);
    let (length, _, destination) = family.layout();
    if let Some(address) = port.address {
        e::payload(m, e::NETWORK, destination, length, FIRST);
        e::equals(m, &octets(address));
    }
    e::meta(m, e::META_L4PROTO, FIRST);
    e::equals(m, &[port.protocol]);
    e::payload(m, e::TRANSPORT, 2, 2, FIRST);
    e::equals(m, &port.node.to_be_bytes());
    let after_address = FIRST + family.words();
    e::load(m, FIRST, &octets(target));
    e::load(m, after_address, &port.pod.to_be_bytes());
    e::destination_nat(m, family.number(), after_address);
}

fn masquerade(m: &mut Batch, source: Option<IpAddr>, target: IpAddr) {
    let (length, from, to) = Family::of(target).layout();
    if let Some(source) = source {
        e::payload(m, e::NETWORK, from, length, FIRST);
        e::equals(m, &octets(source));
    }
    e::payload(m, e::NETWORK, to, length, FIRST);
    e::equals(m, &octets(target));
    e::masquerade(m);
}

/// Returns how many rules of a container each chain must have at least.
pub(super) fn expected(options: &Options, target: IpAddr) -> [(&'static str, usize); 2] {
    let masquerading = match (options.masquerades, target.is_ipv4() && !options.masquerades_all) {
        (false, _) => 0,
        (true, false) => 1,
        (true, true) => 2,
    };
    [(HOST_PORTS, of_family(options, target).count()), (MASQUERADING, masquerading)]
}
