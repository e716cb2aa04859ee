//! Drops frames of a pod that have another source MAC address than the pod's. Table, chains and comments are those of the
//! reference plugin.

use rtnl::nft::{
    COMMENT_MAX, Family, Hook, Table, Transaction,
    expression::{self as e, FIRST, NAME},
    rules,
};
use rustix::io::Errno;

use crate::{Error, Request};

const PREROUTING: &str = "PREROUTING";
/// Offset of the source in an Ethernet header.
const SOURCE_OFFSET: u32 = 6;

fn table() -> Table {
    Table { family: Family::Bridge, name: "nat".into() }
}

struct Chains {
    of_interface: String,
    of_mac: String,
    comment: String,
}

impl Chains {
    fn of(request: &Request) -> Self {
        let id = format!("{}-{}", request.container, request.interface);
        let of_interface = format!("cni-br-iface-{id}");
        let mut comment = format!("macspoofchk-{id}");
        comment.truncate(COMMENT_MAX);
        Self { of_mac: format!("{of_interface}-mac"), of_interface, comment }
    }
}

/// Permits only frames with a MAC address through the node's end.
pub(super) fn add(request: &Request, port: &str, mac: &[u8]) -> Result<(), Error> {
    let (table, chains) = (table(), Chains::of(request));
    let fail = |refusal| Error::of_module("add rule to", table.to_string(), "nf_tables", refusal);
    let old = request.nft.with(|socket| rules(socket, &table, PREROUTING).map_err(fail))?;
    let mut t = Transaction::new(&table);
    t.create_table();
    t.create_chain(PREROUTING, Some(Hook { kind: "filter", number: 0, priority: -300 }));
    for chain in [&chains.of_interface, &chains.of_mac] {
        t.create_chain(chain, None);
        t.flush_chain(chain);
    }
    for rule in old.iter().filter(|rule| rule.comment == chains.comment) {
        t.delete_rule(PREROUTING, rule.handle);
    }
    t.append_rule(PREROUTING, &chains.comment, |m| {
        let mut name = port.as_bytes().to_vec();
        name.resize(NAME, 0);
        e::meta(m, e::META_IIFNAME, FIRST);
        e::equals(m, &name);
        e::verdict(m, e::JUMP, Some(&chains.of_interface));
    });
    t.append_rule(&chains.of_interface, &chains.comment, |m| e::verdict(m, e::JUMP, Some(&chains.of_mac)));
    t.append_rule(&chains.of_mac, &chains.comment, |m| {
        e::payload(m, e::LINK, SOURCE_OFFSET, 6, FIRST);
        e::equals(m, mac);
        e::verdict(m, e::RETURN, None);
    });
    t.append_rule(&chains.of_mac, &chains.comment, |m| e::verdict(m, e::DROP, None));
    request.nft.with(|socket| t.commit(socket).map_err(fail))
}

/// Removes the rules of the pod's interface.
pub(super) fn delete(request: &Request) -> Result<(), Error> {
    let (table, chains) = (table(), Chains::of(request));
    let fail = |refusal| Error::kernel("delete rules of", table.to_string(), refusal);
    let listed = request.nft.with(|socket| rules(socket, &table, PREROUTING).map_err(fail))?;
    let stale: Vec<u64> = listed.iter().filter(|rule| rule.comment == chains.comment).map(|rule| rule.handle).collect();
    let mut t = Transaction::new(&table);
    for handle in &stale {
        t.delete_rule(PREROUTING, *handle);
    }
    for chain in [&chains.of_interface, &chains.of_mac] {
        t.flush_chain(chain);
    }
    for chain in [&chains.of_interface, &chains.of_mac] {
        t.delete_chain(chain);
    }
    request.nft.with(|socket| match t.commit(socket) {
        Err(refusal) if refusal.errno == Errno::NOENT && stale.is_empty() => Ok(()),
        committed => committed.map_err(fail),
    })
}
