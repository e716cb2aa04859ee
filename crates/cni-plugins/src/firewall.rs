//! `firewall`: accepts forwarded packets of a pod, and separates bridges, in the table and the chain where the node's
//! firewall drops them: `FORWARD` of the table `filter`, which iptables-nft uses too.
//!
//! ```text
//! table ip filter {
//!     chain FORWARD { type filter hook forward priority 0; jump CNI-ISOLATION-STAGE-1; jump CNI-FORWARD; … }
//!     chain CNI-FORWARD { jump CNI-ADMIN; ip daddr 10.1.0.2 ct state established,related accept; ip saddr 10.1.0.2 accept }
//!     chain CNI-ISOLATION-STAGE-1 { iifname "cni0" oifname != "cni0" jump CNI-ISOLATION-STAGE-2 }
//!     chain CNI-ISOLATION-STAGE-2 { oifname "cni0" drop }
//! }
//! ```

use rtnl::{
    netlink::Batch,
    nft::{
        COMMENT_MAX, Family, Hook, Table, Transaction,
        expression::{self as e, FIRST, NAME},
        rules,
    },
    subnet::{Subnet, octets},
};
use serde::Deserialize;

use crate::{Error, PluginResult, Request, masquerade};

const FORWARD: &str = "FORWARD";
const OWN: &str = "CNI-FORWARD";
const STAGE_1: &str = "CNI-ISOLATION-STAGE-1";
const STAGE_2: &str = "CNI-ISOLATION-STAGE-2";
const JUMP_COMMENT: &str = "CNI firewall plugin rules";

/// What other networks of the node may send to the pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Open,
    SameBridge,
    Isolated,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Options {
    #[serde(default)]
    backend: String,
    #[serde(default)]
    iptables_admin_chain_name: String,
    #[serde(default)]
    ingress_policy: String,
}

impl Options {
    fn parse(request: &Request) -> Result<(Self, Policy), Error> {
        let mut options: Self = request.options()?;
        if !matches!(options.backend.as_str(), "" | "iptables" | "nftables") {
            let reason = format!("{:?} is not supported; use the reference plugin", options.backend);
            return Err(Error::config("backend", reason));
        }
        if options.iptables_admin_chain_name.is_empty() {
            options.iptables_admin_chain_name = "CNI-ADMIN".into();
        }
        let policy = match options.ingress_policy.as_str() {
            "" | "open" => Policy::Open,
            "same-bridge" => Policy::SameBridge,
            "isolated" => Policy::Isolated,
            other => return Err(Error::config("ingressPolicy", format!("{other:?} is unknown"))),
        };
        Ok((options, policy))
    }
}

fn table(family: Family) -> Table {
    Table { family, name: "filter".into() }
}

fn comment(request: &Request) -> String {
    let mut comment = format!("{} {}", request.container, request.interface);
    comment.truncate(COMMENT_MAX);
    comment
}

fn addresses(result: &PluginResult, family: Family) -> Vec<Subnet> {
    result.ips.iter().map(|ip| ip.address).filter(|a| Family::of(a.address) == family).collect()
}

/// Reports whether a link of the node is an end of a veth pair.
fn is_veth(name: &str) -> Result<bool, Error> {
    let found = rtnl::link_by_name(&mut Request::node_socket()?, name).map_err(|e| Error::kernel("find", name, e))?;
    Ok(found.is_some_and(|link| link.kind == "veth"))
}

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let (options, policy) = Options::parse(request)?;
    let result = request.required_previous()?;
    let bridge = result.interfaces.first().map(|interface| interface.name.as_str()).unwrap_or_default();
    if policy != Policy::Open && !rtnl::valid_name(bridge) {
        return Err(Error::config("prevResult", "has no interface, which the ingress policy needs"));
    }
    if policy != Policy::Open && is_veth(bridge)? {
        let reason = format!(
            "separates bridges, but {bridge} is an end of a veth pair: no bridge connects the pod; use \"open\""
        );
        return Err(Error::config("ingressPolicy", reason));
    }
    for family in [Family::V4, Family::V6] {
        let addresses = addresses(&result, family);
        if addresses.is_empty() {
            continue;
        }
        let table = table(family);
        let fail = |refusal| Error::of_module("add rules to", table.to_string(), "nf_tables", refusal);
        let list = |chain: &str| request.nft.with(|socket| rules(socket, &table, chain).map_err(fail));
        let has = |rules: &[rtnl::nft::ListedRule], comment: &str| rules.iter().any(|rule| rule.comment == comment);
        let (forward, own) = (list(FORWARD)?, list(OWN)?);
        let (stage_1, stage_2) = (list(STAGE_1)?, list(STAGE_2)?);
        let mut t = Transaction::new(&table);
        t.create_table();
        t.create_chain(FORWARD, Some(Hook { kind: "filter", number: 2, priority: 0 }));
        t.create_chain(&options.iptables_admin_chain_name, None);
        t.create_chain(OWN, None);
        if !has(&forward, JUMP_COMMENT) {
            t.insert_rule(FORWARD, JUMP_COMMENT, |m| e::verdict(m, e::JUMP, Some(OWN)));
        }
        if own.is_empty() {
            let admin = &options.iptables_admin_chain_name;
            t.append_rule(OWN, "CNI firewall plugin admin overrides", |m| e::verdict(m, e::JUMP, Some(admin)));
        }
        let comment = comment(request);
        for rule in own.iter().filter(|rule| rule.comment == comment) {
            t.delete_rule(OWN, rule.handle);
        }
        for address in &addresses {
            t.append_rule(OWN, &comment, |m| accept_answers(m, *address));
            t.append_rule(OWN, &comment, |m| accept_from(m, *address));
        }
        if policy != Policy::Open {
            isolate(&mut t, bridge, policy, &|chain, comment| match chain {
                FORWARD => has(&forward, comment),
                STAGE_1 => has(&stage_1, comment),
                _ => has(&stage_2, comment),
            });
        }
        request.nft.with(|socket| t.commit(socket).map_err(fail))?;
    }
    Ok(result)
}

fn accept_answers(m: &mut Batch, address: Subnet) {
    let (length, _, destination) = Family::of(address.address).layout();
    e::payload(m, e::NETWORK, destination, length, FIRST);
    e::equals(m, &octets(address.address));
    e::is_known_connection(m);
    e::verdict(m, e::ACCEPT, None);
}

fn accept_from(m: &mut Batch, address: Subnet) {
    let (length, source, _) = Family::of(address.address).layout();
    e::payload(m, e::NETWORK, source, length, FIRST);
    e::equals(m, &octets(address.address));
    e::verdict(m, e::ACCEPT, None);
}

/// Adds the rules of a bridge unless they exist. They stay when the pod ends: other pods may need them.
fn isolate(t: &mut Transaction, bridge: &str, policy: Policy, has: &dyn Fn(&str, &str) -> bool) {
    let mut name = bridge.as_bytes().to_vec();
    name.resize(NAME, 0);
    let through = |m: &mut Batch, key: u32, is_equal: bool| {
        e::meta(m, key, FIRST);
        if is_equal { e::equals(m, &name) } else { e::differs(m, &name) }
    };
    t.create_chain(STAGE_1, None);
    t.create_chain(STAGE_2, None);
    let jump = format!("{JUMP_COMMENT} (ingressPolicy: same-bridge|isolated)");
    if !has(FORWARD, &jump) {
        t.insert_rule(FORWARD, &jump, |m| e::verdict(m, e::JUMP, Some(STAGE_1)));
    }
    let leaves = format!("leaves {bridge}");
    if !has(STAGE_1, &leaves) {
        t.insert_rule(STAGE_1, &leaves, |m| {
            through(m, e::META_IIFNAME, true);
            through(m, e::META_OIFNAME, false);
            e::verdict(m, e::JUMP, Some(STAGE_2));
        });
    }
    let within = format!("within {bridge}");
    if policy == Policy::Isolated && !has(STAGE_1, &within) {
        t.insert_rule(STAGE_1, &within, |m| {
            through(m, e::META_IIFNAME, true);
            through(m, e::META_OIFNAME, true);
            e::verdict(m, e::DROP, None);
        });
    }
    let enters = format!("enters {bridge}");
    if !has(STAGE_2, &enters) {
        t.insert_rule(STAGE_2, &enters, |m| {
            through(m, e::META_OIFNAME, true);
            e::verdict(m, e::DROP, None);
        });
    }
}

pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    Options::parse(request)?;
    let comment = comment(request);
    for family in [Family::V4, Family::V6] {
        masquerade::delete_rules(&request.nft, &table(family), &[OWN], |found| found == comment)?;
    }
    Ok(())
}

pub(crate) fn check(request: &Request) -> Result<(), Error> {
    Options::parse(request)?;
    let (result, comment) = (request.required_previous()?, comment(request));
    for family in [Family::V4, Family::V6] {
        let expected = addresses(&result, family).len() * 2;
        let table = table(family);
        let fail = |refusal| Error::kernel("list rules of", table.to_string(), refusal);
        let list = |chain: &str| request.nft.with(|socket| rules(socket, &table, chain).map_err(fail));
        let has_jump = expected == 0 || list(FORWARD)?.iter().any(|rule| rule.comment == JUMP_COMMENT);
        let found = list(OWN)?.iter().filter(|rule| rule.comment == comment).count();
        if found < expected || !has_jump {
            return Err(Error::differs(table.to_string(), "has not the rules of the pod"));
        }
    }
    Ok(())
}
