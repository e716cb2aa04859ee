//! Masquerading of packets that leave a pod's subnet: a rule for each address, found again by its comment. Table, chains
//! and comments are those of the nftables backend of the reference plugins.

use std::io;

use rtnl::{
    netlink::{Batch, Socket},
    nft::{
        COMMENT_MAX, Family, Hook, Table, Transaction,
        expression::{self as e, FIRST},
        rules,
    },
    subnet::{Subnet, bits, octets},
};

use crate::{Error, NftSocket, Request, hash};

/// How often rules are deleted while other processes delete rules, too.
const ATTEMPTS: usize = 8;
const TABLE: &str = "cni_plugins_masquerade";
const CHAIN: &str = "masq_checks";
const POSTROUTING: &str = "postrouting";
/// Number of rules of the base chain: two for multicast, and one that leads to the rules of pods.
const POSTROUTING_RULES: usize = 3;
/// Digits of the hash of a network.
const DIGITS: usize = 16;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;

fn table() -> Table {
    Table { family: Family::Inet, name: TABLE.into() }
}

fn instance(network: &str, interface: &str, container: &str) -> String {
    let of_interface = hash::name(DIGITS, "", &format!("{interface}:{container}"));
    format!("{}-{of_interface}", hash::name(DIGITS, "", network))
}

fn comment(network: &str, interface: &str, container: &str) -> String {
    let hash = instance(network, interface, container);
    let mut comment = format!("{hash}, net: {network}, if: {interface}, id: {container}");
    comment.truncate(COMMENT_MAX);
    comment
}

/// Adds rules for the addresses, and replaces those of an earlier attachment of the interface.
pub(crate) fn add(request: &Request, addresses: &[Subnet]) -> Result<(), Error> {
    let table = table();
    let fail = |refusal| Error::of_module("add rule to", table.to_string(), "nf_tables", refusal);
    let comment = comment(&request.network, &request.interface, &request.container);
    let hash = instance(&request.network, &request.interface, &request.container);
    request.nft.with(|socket| {
        // The time to list the rules grows with the number of pods.
        let old = if request.is_new { Vec::new() } else { rules(socket, &table, CHAIN).map_err(fail)? };
        let base = rules(socket, &table, POSTROUTING).map_err(fail)?;
        let mut t = Transaction::new(&table);
        t.create_table();
        t.create_chain(CHAIN, None);
        // The reference plugin makes these rules again for each pod.
        if base.len() != POSTROUTING_RULES {
            t.create_chain(POSTROUTING, Some(Hook { kind: "nat", number: 4, priority: 100 }));
            t.flush_chain(POSTROUTING);
            multicast_rules(&mut t);
            t.append_rule(POSTROUTING, "", |m| e::verdict(m, e::GOTO, Some(CHAIN)));
        }
        for rule in old.iter().filter(|rule| rule.comment.starts_with(&hash)) {
            t.delete_rule(CHAIN, rule.handle);
        }
        for address in addresses {
            t.append_rule(CHAIN, &comment, |m| leaves_subnet(m, *address));
        }
        t.commit(socket).map_err(fail)
    })
}

fn multicast_rules(t: &mut Transaction) {
    t.append_rule(POSTROUTING, "", |m| {
        is_of_family(m, NFPROTO_IPV4);
        e::payload(m, e::NETWORK, 16, 4, FIRST);
        e::mask(m, &[0xf0, 0, 0, 0]);
        e::equals(m, &[0xe0, 0, 0, 0]);
        e::verdict(m, e::RETURN, None);
    });
    t.append_rule(POSTROUTING, "", |m| {
        is_of_family(m, NFPROTO_IPV6);
        e::payload(m, e::NETWORK, 24, 1, FIRST);
        e::equals(m, &[0xff]);
        e::verdict(m, e::RETURN, None);
    });
}

fn is_of_family(m: &mut Batch, family: u8) {
    e::meta(m, e::META_NFPROTO, FIRST);
    e::equals(m, &[family]);
}

/// `ip saddr A ip daddr != SUBNET masquerade`
fn leaves_subnet(m: &mut Batch, address: Subnet) {
    let family = Family::of(address.address);
    let (length, source, destination) = family.layout();
    is_of_family(m, family.number());
    e::payload(m, e::NETWORK, source, length, FIRST);
    e::equals(m, &octets(address.address));
    e::payload(m, e::NETWORK, destination, length, FIRST);
    if address.prefix < bits(address.address) {
        let network = Subnet { address: address.last(), ..address };
        let ones =
            octets(network.address).iter().zip(octets(address.network())).map(|(a, b)| !(a ^ b)).collect::<Vec<_>>();
        e::mask(m, &ones);
    }
    e::differs(m, &octets(address.network()));
    e::masquerade(m);
}

/// Deletes the rules of the interface.
pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    let hash = instance(&request.network, &request.interface, &request.container);
    delete_if(&request.nft, |comment| comment.starts_with(&hash))
}

/// Deletes the rules of the network's attachments that are not valid.
pub(crate) fn collect(request: &Request) -> Result<(), Error> {
    let valid = request.valid_attachments()?;
    let hashes: Vec<String> = valid.iter().map(|a| instance(&request.network, &a.interface, &a.container)).collect();
    let network = hash::name(DIGITS, "", &request.network);
    let is_valid = |comment: &str| hashes.iter().any(|hash| comment.starts_with(hash));
    delete_if(&request.nft, |comment| comment.starts_with(&network) && !is_valid(comment))
}

fn delete_if(nft: &NftSocket, is_stale: impl Fn(&str) -> bool) -> Result<(), Error> {
    delete_rules(nft, &table(), &[CHAIN], is_stale)
}

/// Deletes the rules of chains whose comments satisfy a condition. Chains that do not exist have no rules.
pub(crate) fn delete_rules(
    nft: &NftSocket,
    table: &Table,
    chains: &[&str],
    is_stale: impl Fn(&str) -> bool,
) -> Result<(), Error> {
    let fail = |refusal| Error::kernel("delete rules of", table.to_string(), refusal);
    let attempt = |socket: &mut Socket| {
        let mut t = Transaction::new(table);
        for chain in chains {
            for rule in rules(socket, table, chain).map_err(fail)? {
                if is_stale(&rule.comment) {
                    t.delete_rule(chain, rule.handle);
                }
            }
        }
        t.commit(socket).map_err(fail)
    };
    // Another process, such as one that collects, may delete a rule between the list and the transaction, which has no
    // effect then.
    let mut outcome = nft.with(attempt);
    for _ in 1..ATTEMPTS {
        match &outcome {
            Err(Error::Kernel { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => outcome = nft.with(attempt),
            _ => break,
        }
    }
    outcome
}
