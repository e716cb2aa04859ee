//! `portmap`: ports of the node that lead to a pod, as nftables rules that are found again by the container's id. Tables,
//! chains and comments are those of the nftables backend of the reference plugin.

mod options;
mod rules;

use std::net::IpAddr;

pub(crate) use options::is_supported;

use options::Options;
use rtnl::nft::{Family, Transaction};

use crate::{Error, PluginResult, Request, masquerade, nft_socket, sysctl};

/// Returns the pod's first address of each family, which ports lead to.
fn targets(request: &Request) -> Vec<IpAddr> {
    let Some(previous) = &request.previous else { return Vec::new() };
    let is_of_pod = |ip: &&crate::Ip| match ip.interface.and_then(|index| previous.interfaces.get(index)) {
        Some(interface) => interface.name == request.interface && !interface.sandbox.is_empty(),
        None => true,
    };
    let first = |ipv4: bool| {
        let mut of_pod = previous.ips.iter().filter(is_of_pod).map(|ip| ip.address.address);
        of_pod.find(|address| address.is_ipv4() == ipv4)
    };
    first(true).into_iter().chain(first(false)).collect()
}

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let options = Options::parse(request)?;
    let result = request.required_previous()?;
    if options.ports.is_empty() {
        return Ok(result);
    }
    for target in targets(request) {
        let table = rules::table(Family::of(target));
        let fail = |refusal| Error::of_module("map ports in", table.to_string(), "nf_tables", refusal);
        let mut t = Transaction::new(&table);
        rules::create(&mut t, &options);
        rules::map(&mut t, &options, target, &request.container);
        request.nft.with(|socket| t.commit(socket).map_err(fail))?;
        if options.masquerades && target.is_ipv4() {
            route_loopback(target)?;
        }
        forget(&options, Family::of(target));
    }
    Ok(result)
}

/// Lets packets from 127.0.0.1 of the node through the link that the pod is behind.
fn route_loopback(target: IpAddr) -> Result<(), Error> {
    let mut socket = Request::node_socket()?;
    let fail = |refusal| Error::kernel("find route to", target.to_string(), refusal);
    // A pod without a route from the node is reached from other machines only.
    let Ok(Some(index)) = rtnl::link_to(&mut socket, target) else { return Ok(()) };
    match rtnl::link_by_index(&mut socket, index).map_err(fail)? {
        Some(link) => sysctl::write(&format!("ipv4/conf/{}/route_localnet", link.name), "1"),
        None => Ok(()),
    }
}

/// Forgets UDP flows to the ports. Best effort: it only helps clients that keep their port.
fn forget(options: &Options, family: Family) {
    if let Ok(mut socket) = nft_socket::open() {
        let _ = rtnl::forget_udp(&mut socket, family, &options.udp_ports());
    }
}

pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    // Rules are found by the container's id: the engine need not know the ports any longer.
    for family in [Family::V4, Family::V6] {
        let is_own = |comment: &str| comment == rules::comment(&request.container);
        masquerade::delete_rules(&request.nft, &rules::table(family), &rules::CHAINS, is_own)?;
    }
    if let Ok(options) = Options::parse(request) {
        forget(&options, Family::V4);
        forget(&options, Family::V6);
    }
    Ok(())
}

pub(crate) fn check(request: &Request) -> Result<(), Error> {
    let options = Options::parse(request)?;
    request.required_previous()?;
    for target in targets(request).into_iter().filter(|_| !options.ports.is_empty()) {
        let table = rules::table(Family::of(target));
        for (chain, expected) in rules::expected(&options, target) {
            let fail = |refusal| Error::kernel("list rules of", table.to_string(), refusal);
            let listed = request.nft.with(|socket| rtnl::nft::rules(socket, &table, chain).map_err(fail))?;
            let comment = rules::comment(&request.container);
            let found = listed.iter().filter(|rule| rule.comment == comment).count();
            if found < expected {
                return Err(Error::differs(chain, format!("has {found} rules of the container, not {expected}")));
            }
        }
    }
    Ok(())
}

/// Checks the configuration, and that the kernel has nftables.
pub(crate) fn status(request: &Request) -> Result<(), Error> {
    Options::parse(request)?;
    // The kernel loads the modules for the request.
    let table = rules::table(Family::V4);
    let fail = |refusal| Error::of_module("list rules of", table.to_string(), "nf_tables", refusal);
    request.nft.with(|socket| rtnl::nft::rules(socket, &table, rules::CHAINS[0]).map(drop).map_err(fail))
}
