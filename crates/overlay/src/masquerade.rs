//! Masquerading of packets of pods that leave the network: one chain for each overlay, however many pods there are.

use rtnl::{
    netlink::{Batch, Socket},
    nft::{
        Family, Hook, Table, Transaction,
        expression::{self as e, FIRST},
        rules,
    },
    subnet::{Subnet, bits, octets},
};
use rustix::io::Errno;

use crate::{Error, Overlay};

const POSTROUTING: &str = "postrouting";
const NF_INET_POST_ROUTING: u32 = 4;
const SOURCE_NAT: i32 = 100;

fn table() -> Table {
    Table { family: Family::Inet, name: "pinion_overlay".into() }
}

fn chain(id: u32) -> String {
    format!("overlay_{id}")
}

fn open() -> Result<Socket, Error> {
    Socket::netfilter().map_err(|cause| match Errno::from_io_error(&cause) {
        Some(Errno::PROTONOSUPPORT) => {
            Error::Unsupported { operation: "open", object: "nftables socket".into(), module: "nfnetlink" }
        }
        _ => Error::kernel("open", "nftables socket", cause),
    })
}

/// A pair of a node's subnet and the network that it is within.
struct Rule {
    subnet: Subnet,
    network: Subnet,
}

impl Rule {
    fn comment(&self) -> String {
        format!("{} leaves {}", self.subnet, self.network)
    }

    /// `ip saddr SUBNET ip daddr != NETWORK masquerade`
    fn append(&self, m: &mut Batch) {
        let family = Family::of(self.subnet.address);
        let (length, source, destination) = family.layout();
        e::meta(m, e::META_NFPROTO, FIRST);
        e::equals(m, &[family.number()]);
        load_prefix(m, source, length, self.subnet);
        e::equals(m, &octets(self.subnet.network()));
        load_prefix(m, destination, length, self.network);
        e::differs(m, &octets(self.network.network()));
        e::masquerade(m);
    }
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

/// The rules of an overlay in the kernel.
struct Present {
    /// Comments of the rules of the overlay's chain.
    comments: Vec<String>,
    /// Whether a rule leads to the chain.
    has_jump: bool,
}

impl Present {
    fn read(socket: &mut Socket, id: u32) -> Result<Self, Error> {
        let (table, chain) = (table(), chain(id));
        let fail = |refusal| Error::kernel("list rules of", table.to_string(), refusal);
        let present = rules(socket, &table, &chain).map_err(fail)?;
        let jumps = rules(socket, &table, POSTROUTING).map_err(fail)?;
        let comments = present.into_iter().map(|rule| rule.comment).filter(|comment| !comment.is_empty()).collect();
        Ok(Self { comments, has_jump: jumps.iter().any(|rule| rule.comment == chain) })
    }

    fn is(&self, needed: &[Rule]) -> bool {
        self.has_jump != needed.is_empty() && self.comments == needed.iter().map(Rule::comment).collect::<Vec<_>>()
    }
}

fn needed(overlay: &Overlay) -> Vec<Rule> {
    let pairs = overlay.subnets.iter().zip(&overlay.networks).filter(|_| overlay.masquerades);
    pairs.map(|(subnet, network)| Rule { subnet: *subnet, network: *network }).collect()
}

/// Reports whether the rules are those of the overlay.
pub(crate) fn is_current(overlay: &Overlay) -> Result<bool, Error> {
    Ok(Present::read(&mut open()?, overlay.id)?.is(&needed(overlay)))
}

/// Makes the rules those of the overlay; returns how many were changed.
pub(crate) fn set(overlay: &Overlay) -> Result<usize, Error> {
    let needed = needed(overlay);
    let mut socket = open()?;
    let present = Present::read(&mut socket, overlay.id)?;
    if present.is(&needed) {
        return Ok(0);
    }
    if needed.is_empty() {
        return remove(overlay.id).map(|()| present.comments.len());
    }
    let (table, chain) = (table(), chain(overlay.id));
    let mut t = Transaction::new(&table);
    t.create_table();
    t.create_chain(POSTROUTING, Some(Hook { kind: "nat", number: NF_INET_POST_ROUTING, priority: SOURCE_NAT }));
    t.create_chain(&chain, None);
    t.flush_chain(&chain);
    for family in [Family::V4, Family::V6] {
        t.append_rule(&chain, "", |m| skip_multicast(m, family));
    }
    for rule in &needed {
        t.append_rule(&chain, &rule.comment(), |m| rule.append(m));
    }
    if !present.has_jump {
        t.append_rule(POSTROUTING, &chain, |m| e::verdict(m, e::JUMP, Some(&chain)));
    }
    t.commit(&mut socket).map_err(|refusal| match refusal.errno {
        Errno::OPNOTSUPP | Errno::AFNOSUPPORT | Errno::NOENT => {
            Error::Unsupported { operation: "add rules to", object: table.to_string(), module: "nf_tables" }
        }
        _ => Error::kernel("add rules to", table.to_string(), refusal),
    })?;
    Ok(needed.len())
}

/// Removes the rules of an overlay. Succeeds if there are none.
pub(crate) fn remove(id: u32) -> Result<(), Error> {
    let (table, chain) = (table(), chain(id));
    let fail = |refusal| Error::kernel("delete rules of", table.to_string(), refusal);
    let mut socket = match open() {
        Err(Error::Unsupported { .. }) => return Ok(()),
        socket => socket?,
    };
    let mut t = Transaction::new(&table);
    for rule in rules(&mut socket, &table, POSTROUTING).map_err(fail)?.iter().filter(|rule| rule.comment == chain) {
        t.delete_rule(POSTROUTING, rule.handle);
    }
    t.flush_chain(&chain);
    t.delete_chain(&chain);
    match t.commit(&mut socket) {
        Err(refusal) if refusal.errno != Errno::NOENT => Err(fail(refusal)),
        _ => Ok(()),
    }
}
