//! Rules of a node for its overlays: masquerading, a filter that keeps pods out of the tunnel, and one that keeps out what was
//! to be encrypted. One chain of each kind for each overlay, however many pods and nodes there are.

use rtnl::{
    Link,
    netlink::{Batch, Socket},
    nft::{
        Family, Hook, Table, Transaction,
        expression::{self as e, FIRST},
        rules,
    },
    subnet::{Subnet, bits, octets},
};
use rustix::io::Errno;

use crate::{Error, Overlay, endpoint_name, node_address};

const NF_INET_PRE_ROUTING: u32 = 0;
const NF_INET_LOCAL_IN: u32 = 1;
const NF_INET_FORWARD: u32 = 2;
const NF_INET_POST_ROUTING: u32 = 4;
const FILTER: i32 = 0;
/// After connection tracking, before the translation of destinations.
const MANGLE: i32 = -150;
const SOURCE_NAT: i32 = 100;
const IPPROTO_UDP: u8 = 17;

/// The kinds of chains.
const CHAINS: [Kind; 4] = [
    Kind {
        base: "postrouting",
        prefix: "overlay",
        hook: Hook { kind: "nat", number: NF_INET_POST_ROUTING, priority: SOURCE_NAT },
    },
    Kind { base: "forward", prefix: "guard", hook: Hook { kind: "filter", number: NF_INET_FORWARD, priority: FILTER } },
    Kind {
        base: "input",
        prefix: "inner_guard",
        hook: Hook { kind: "filter", number: NF_INET_LOCAL_IN, priority: FILTER },
    },
    Kind {
        base: "prerouting",
        prefix: "authentic",
        hook: Hook { kind: "filter", number: NF_INET_PRE_ROUTING, priority: MANGLE },
    },
];

/// A base chain, and the chains of overlays that it jumps to.
struct Kind {
    base: &'static str,
    prefix: &'static str,
    hook: Hook,
}

impl Kind {
    fn chain(&self, id: u32) -> String {
        format!("{}_{id}", self.prefix)
    }
}

fn table() -> Table {
    Table { family: Family::Inet, name: "pinion_overlay".into() }
}

fn open() -> Result<Socket, Error> {
    Socket::netfilter().map_err(|cause| match Errno::from_io_error(&cause) {
        Some(Errno::PROTONOSUPPORT) => {
            Error::Unsupported { operation: "open", object: "nftables socket".into(), module: "nfnetlink" }
        }
        _ => Error::kernel("open", "nftables socket", cause),
    })
}

/// A rule. Its comment describes it completely, so that rules are compared by their comments.
enum Rule {
    /// Packets of pods that leave the network get the address of the node.
    Leaves(Subnet),
    /// Packets of the node, or of others, that enter the tunnel get the address of the endpoint: else the response would take
    /// another way.
    Enters { network: Subnet, endpoint: String },
    /// Packets for a tunnel port are dropped unless they arrived by the link of the node's address: no pod can send frames to
    /// endpoints of other nodes, or of its own.
    Guard { link: String, port: u16 },
    /// Packets from addresses of an encrypted network are dropped unless they arrived by the link that leads to the address:
    /// that of the pod, or the tunnel. So nothing that is not encrypted passes for a packet of a pod. Before Linux 6.15 the
    /// kernel takes packets on lo for ones without a route, except in this hook.
    Authentic(Subnet),
}

impl Rule {
    fn comment(&self) -> String {
        match self {
            Self::Leaves(network) => format!("leaves {network}"),
            Self::Enters { network, endpoint } => format!("enters {network} by {endpoint}"),
            Self::Guard { link, port } => format!("tunnel port {port} of {link}"),
            Self::Authentic(network) => format!("from {network} by its link"),
        }
    }

    fn append(&self, m: &mut Batch) {
        match self {
            // ip saddr NETWORK ip daddr != NETWORK masquerade
            Self::Leaves(network) => {
                let (length, source, destination) = family(m, *network);
                load_prefix(m, source, length, *network);
                e::equals(m, &octets(network.network()));
                load_prefix(m, destination, length, *network);
                e::differs(m, &octets(network.network()));
                e::masquerade(m);
            }
            // oifname ENDPOINT ip saddr != NETWORK masquerade
            Self::Enters { network, endpoint } => {
                let (length, source, _) = family(m, *network);
                name(m, e::META_OIFNAME, endpoint, true);
                load_prefix(m, source, length, *network);
                e::differs(m, &octets(network.network()));
                e::masquerade(m);
            }
            // ip saddr NETWORK fib saddr . iif oif missing drop
            Self::Authentic(network) => {
                let (length, source, _) = family(m, *network);
                load_prefix(m, source, length, *network);
                e::equals(m, &octets(network.network()));
                e::source_route_missing(m);
                e::verdict(m, e::DROP, None);
            }
            // iifname != LINK udp dport PORT drop
            Self::Guard { link, port } => {
                name(m, e::META_IIFNAME, link, false);
                e::meta(m, e::META_L4PROTO, FIRST);
                e::equals(m, &[IPPROTO_UDP]);
                e::payload(m, e::TRANSPORT, 2, 2, FIRST);
                e::equals(m, &port.to_be_bytes());
                e::verdict(m, e::DROP, None);
            }
        }
    }
}

/// Ends the rule for packets of another family; returns the layout of addresses.
fn family(m: &mut Batch, subnet: Subnet) -> (u32, u32, u32) {
    let family = Family::of(subnet.address);
    e::meta(m, e::META_NFPROTO, FIRST);
    e::equals(m, &[family.number()]);
    family.layout()
}

/// Ends the rule unless the link of a packet has a name, or has another one.
fn name(m: &mut Batch, key: u32, link: &str, is_equal: bool) {
    let mut bytes = [0; e::NAME];
    let length = link.len().min(e::NAME - 1);
    bytes[..length].copy_from_slice(&link.as_bytes()[..length]);
    e::meta(m, key, FIRST);
    if is_equal { e::equals(m, &bytes) } else { e::differs(m, &bytes) }
}

/// Loads an address of the packet without the host bits of a subnet.
fn load_prefix(m: &mut Batch, offset: u32, length: u32, subnet: Subnet) {
    e::payload(m, e::NETWORK, offset, length, FIRST);
    if subnet.prefix < bits(subnet.address) {
        let mask: Vec<u8> =
            octets(subnet.last()).iter().zip(octets(subnet.network())).map(|(last, first)| !(last ^ first)).collect();
        e::mask(m, &mask);
    }
}

/// Returns from the chain for multicast packets, which are not translated.
fn skip_multicast(m: &mut Batch, family: Family) {
    let (_, _, destination) = family.layout();
    e::meta(m, e::META_NFPROTO, FIRST);
    e::equals(m, &[family.number()]);
    e::payload(m, e::NETWORK, destination, 1, FIRST);
    if family == Family::V4 {
        e::mask(m, &[0xf0]);
        e::equals(m, &[0xe0]);
    } else {
        e::equals(m, &[0xff]);
    }
    e::verdict(m, e::RETURN, None);
}

/// Returns the rules of each kind of chain.
fn required(overlay: &Overlay, link: &Link) -> [Vec<Rule>; 4] {
    let endpoint = endpoint_name(overlay.id);
    let leaves = overlay.networks.iter().filter(|_| overlay.masquerades).map(|network| Rule::Leaves(*network));
    let enters = overlay.networks.iter().map(|network| Rule::Enters { network: *network, endpoint: endpoint.clone() });
    // WireGuard accepts no packet of a pod. And an address on lo names no link that packets leave through.
    let has_guard = !overlay.encrypted && !link.loopback;
    let guard = || has_guard.then(|| Rule::Guard { link: link.name.clone(), port: overlay.port });
    let authentic = overlay.networks.iter().filter(|_| overlay.encrypted).map(|network| Rule::Authentic(*network));
    [leaves.chain(enters).collect(), guard().into_iter().collect(), guard().into_iter().collect(), authentic.collect()]
}

/// What there is of a kind.
struct Present {
    /// Whether the chain has the rules that are required.
    is_same: bool,
    /// Handles of the rules of the base chain that jump to it.
    jumps: Vec<u64>,
}

impl Present {
    /// A chain without rules is not jumped to: packets of other networks would pass it, too.
    fn is_current(&self, required: &[Rule]) -> bool {
        if required.is_empty() { self.jumps.is_empty() } else { self.is_same && !self.jumps.is_empty() }
    }
}

fn present(socket: &mut Socket, kind: &Kind, id: u32, required: &[Rule]) -> Result<Present, Error> {
    let (table, chain) = (table(), kind.chain(id));
    let fail = |refusal| Error::kernel("list rules of", table.to_string(), refusal);
    let present = rules(socket, &table, &chain).map_err(fail)?;
    let jumps = rules(socket, &table, kind.base).map_err(fail)?;
    let comments: Vec<String> = present.into_iter().map(|rule| rule.comment).filter(|c| !c.is_empty()).collect();
    let is_same = comments == required.iter().map(Rule::comment).collect::<Vec<_>>();
    let jumps = jumps.iter().filter(|rule| rule.comment == chain).map(|rule| rule.handle).collect();
    Ok(Present { is_same, jumps })
}

/// Reports whether the rules are those of the overlay.
pub(crate) fn is_current(route: &mut Socket, overlay: &Overlay) -> Result<bool, Error> {
    let link = node_address::link_of(route, overlay.node)?;
    let mut socket = open()?;
    for (kind, rules) in CHAINS.iter().zip(required(overlay, &link)) {
        if !present(&mut socket, kind, overlay.id, &rules)?.is_current(&rules) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes the rules those of the overlay, in one transaction; returns how many were changed.
pub(crate) fn set(route: &mut Socket, overlay: &Overlay) -> Result<usize, Error> {
    let link = node_address::link_of(route, overlay.node)?;
    let table = table();
    let mut socket = open()?;
    let mut t = Transaction::new(&table);
    t.create_table();
    let mut count = 0;
    for (kind, rules) in CHAINS.iter().zip(required(overlay, &link)) {
        let present = present(&mut socket, kind, overlay.id, &rules)?;
        if present.is_current(&rules) {
            continue;
        }
        count += rules.len().max(1);
        let chain = kind.chain(overlay.id);
        if rules.is_empty() {
            present.jumps.iter().for_each(|jump| t.delete_rule(kind.base, *jump));
            continue;
        }
        t.create_chain(kind.base, Some(kind.hook));
        t.create_chain(&chain, None);
        t.flush_chain(&chain);
        if kind.hook.kind == "nat" {
            for family in [Family::V4, Family::V6] {
                t.append_rule(&chain, "", |m| skip_multicast(m, family));
            }
        }
        for rule in &rules {
            t.append_rule(&chain, &rule.comment(), |m| rule.append(m));
        }
        if present.jumps.is_empty() {
            t.append_rule(kind.base, &chain, |m| e::verdict(m, e::JUMP, Some(&chain)));
        }
    }
    if count == 0 {
        return Ok(0);
    }
    t.commit(&mut socket).map(|()| count).map_err(|refusal| match refusal.errno {
        Errno::OPNOTSUPP | Errno::AFNOSUPPORT | Errno::NOENT => {
            Error::Unsupported { operation: "add rules to", object: table.to_string(), module: "nf_tables" }
        }
        _ => Error::kernel("add rules to", table.to_string(), refusal),
    })
}

/// Removes the rules of an overlay. Succeeds if there are none.
pub(crate) fn remove(id: u32) -> Result<(), Error> {
    let table = table();
    let fail = |refusal| Error::kernel("delete rules of", table.to_string(), refusal);
    let mut socket = match open() {
        Err(Error::Unsupported { .. }) => return Ok(()),
        socket => socket?,
    };
    for kind in &CHAINS {
        let chain = kind.chain(id);
        let mut t = Transaction::new(&table);
        for rule in rules(&mut socket, &table, kind.base).map_err(fail)?.iter().filter(|rule| rule.comment == chain) {
            t.delete_rule(kind.base, rule.handle);
        }
        t.flush_chain(&chain);
        t.delete_chain(&chain);
        match t.commit(&mut socket) {
            Err(refusal) if refusal.errno != Errno::NOENT => return Err(fail(refusal)),
            _ => {}
        }
    }
    Ok(())
}
