//! `sbr`: source-based routing. Packets with an address of the interface use a table of their own, with the routes of the
//! interface.

use std::{net::IpAddr, time::Duration};

use rtnl::{
    AddRoute, Route, Rule, TABLE_MAIN,
    netlink::{Batch, Socket},
    subnet::Subnet,
};
use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;
use syscall::file_lock::lock_briefly_held;

use crate::{Error, PluginResult, Request, pod, ptp::single};

/// First table that is used.
const FIRST_TABLE: u32 = 100;

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Options {
    table: Option<u32>,
    gateways: Vec<IpAddr>,
    #[serde(rename = "addSourceHints")]
    keeps_subnets: bool,
}

impl Options {
    fn parse(request: &Request) -> Result<Self, Error> {
        let options: Self = request.options()?;
        let of_family = |ipv4: bool| options.gateways.iter().filter(|gateway| gateway.is_ipv4() == ipv4).count();
        if of_family(true) > 1 || of_family(false) > 1 {
            return Err(Error::config("gateways", "more than one address of a family"));
        }
        Ok(options)
    }

    fn gateway(&self, address: &Subnet, own: Option<IpAddr>) -> Option<IpAddr> {
        self.gateways.iter().copied().find(|gateway| gateway.is_ipv4() == address.address.is_ipv4()).or(own)
    }
}

/// Longest wait for another plugin that changes the tables of the pod.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs work in the pod's namespace while no other plugin changes its tables.
fn alone<T: Send + 'static>(
    request: &Request,
    work: impl FnOnce(&mut Socket) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let namespace = request.namespace()?;
    lock_briefly_held(namespace, LOCK_TIMEOUT).map_err(|e| Error::kernel("lock", &request.namespace_path, e))?;
    let outcome = pod::visit(namespace, work);
    // The lock ends with the descriptor in any case.
    let _ = flock(namespace, FlockOperation::Unlock);
    outcome
}

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let options = Options::parse(request)?;
    let result = request.required_previous()?;
    let is_of_interface = |ip: &&crate::Ip| match ip.interface.and_then(|index| result.interfaces.get(index)) {
        Some(interface) => interface.name == request.interface,
        None => true,
    };
    let addresses: Vec<(Subnet, Option<IpAddr>)> =
        result.ips.iter().filter(is_of_interface).map(|ip| (ip.address, ip.gateway)).collect();
    if result.ips.is_empty() {
        return Err(Error::config("prevResult", format!("{} has no address", request.interface)));
    }
    let name = request.interface.clone();
    alone(request, move |socket| match options.table {
        Some(table) => {
            let mut batch = Batch::new();
            for (address, _) in &addresses {
                rule(address, table).add(&mut batch);
            }
            socket.request(batch).map_err(|e| Error::kernel("add rules for", &name, e))
        }
        None => separate(socket, &name, &addresses, &options),
    })?;
    Ok(result)
}

fn rule(address: &Subnet, table: u32) -> Rule {
    Rule { from: Some(single(address.address)), table, priority: 0 }
}

/// Gives each address a table with the routes of the interface, and removes these routes from the main table.
fn separate(
    socket: &mut Socket,
    name: &str,
    addresses: &[(Subnet, Option<IpAddr>)],
    options: &Options,
) -> Result<(), Error> {
    let fail = |refusal| Error::kernel("separate routes of", name, refusal);
    let link = pod::link(socket, name)?;
    let rules = rtnl::rules(socket).map_err(fail)?;
    let all = rtnl::routes(socket).map_err(fail)?;
    let is_used =
        |table: u32| rules.iter().any(|rule| rule.table == table) || all.iter().any(|route| route.table == table);
    let routes: Vec<Route> = all
        .iter()
        .filter(|route| route.link == link.index && route.table == TABLE_MAIN && route.kind == 1)
        .copied()
        .collect();
    let mut tables = (FIRST_TABLE..u32::MAX).filter(|table| !is_used(*table));
    let mut batch = Batch::new();
    for (address, gateway) in addresses {
        let table = tables.next().unwrap_or(FIRST_TABLE);
        rule(address, table).add(&mut batch);
        if let Some(gateway) = options.gateway(address, *gateway) {
            let everything = Subnet { prefix: 0, ..*address }.masked();
            Route { table, ..Route::new(everything, Some(gateway), link.index) }.add(&mut batch, AddRoute::New);
        }
        for route in &routes {
            let is_inside = |other: Option<IpAddr>| other.is_some_and(|other| address.contains(other));
            let is_generic = route.source.is_none() && route.gateway.is_none();
            if is_inside(route.source) || is_inside(route.gateway) || is_generic {
                Route { table, ..*route }.add(&mut batch, AddRoute::Replace);
            }
        }
    }
    if options.keeps_subnets {
        for (address, _) in addresses {
            let hint = Route {
                source: Some(address.address),
                scope: rtnl::SCOPE_LINK,
                ..Route::new(address.masked(), None, link.index)
            };
            hint.add(&mut batch, AddRoute::Replace);
        }
    }
    for route in routes.iter().filter(|route| !options.keeps_subnets || route.scope != rtnl::SCOPE_LINK) {
        route.delete(&mut batch);
    }
    socket.request(batch).map_err(fail)
}

/// Deletes the rules for addresses of the interface. The tables end with its routes.
pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    let options = Options::parse(request)?;
    if request.namespace.is_none() {
        return Ok(());
    }
    let name = request.interface.clone();
    alone(request, move |socket| {
        let fail = |refusal| Error::kernel("delete rules for", &name, refusal);
        let Some(link) = rtnl::link_by_name(socket, &name).map_err(fail)? else { return Ok(()) };
        let addresses = rtnl::addresses(socket).map_err(fail)?;
        let mut batch = Batch::new();
        for rule in rtnl::rules(socket).map_err(fail)? {
            let is_own =
                |from: Subnet| addresses.iter().any(|a| a.link == link.index && a.address.address == from.address);
            if rule.from.is_some_and(is_own) && options.table.is_none_or(|table| table == rule.table) {
                rule.delete(&mut batch);
            }
        }
        if batch.is_empty() { Ok(()) } else { socket.request(batch).map_err(fail) }
    })
}

pub(crate) fn check(_: &Request) -> Result<(), Error> {
    Ok(())
}
