//! `vrf`: makes the interface a port of a VRF of the pod, which is created for the first port and deleted after the last.

use rtnl::{
    AddRoute, Change, Kind, Link, NewLink, Route, Variant,
    netlink::{Batch, Socket},
};
use serde::Deserialize;

use crate::{Error, PluginResult, Request, pod};

#[derive(Clone, Deserialize)]
struct Options {
    #[serde(default, rename = "vrfname")]
    name: String,
    /// Zero for a free one.
    #[serde(default)]
    table: u32,
}

fn parse(request: &Request) -> Result<Options, Error> {
    let options: Options = request.options()?;
    if !rtnl::valid_name(&options.name) {
        return Err(Error::config("vrfname", format!("{:?} is not a valid link name", options.name)));
    }
    Ok(options)
}

/// Returns the VRF with its table; `None` if a link of its name does not exist.
fn find(socket: &mut Socket, name: &str) -> Result<Option<(Link, u32)>, Error> {
    let found = rtnl::link_by_name(socket, name).map_err(|e| Error::kernel("find", name, e))?;
    match found {
        None => Ok(None),
        Some(link) => match link.variant {
            Variant::Vrf(table) => Ok(Some((link, table))),
            _ => Err(Error::config("vrfname", format!("{name} exists and is of kind {:?}", link.kind))),
        },
    }
}

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let (options, result) = (parse(request)?, request.required_previous()?);
    let interface = request.interface.clone();
    pod::visit(request.namespace()?, move |socket| {
        let vrf = match find(socket, &options.name)? {
            Some((_, table)) if options.table != 0 && table != options.table => {
                let reason = format!("{} exists with the table {table}", options.name);
                return Err(Error::config("table", reason));
            }
            Some(found) => found,
            None => create(socket, &options)?,
        };
        connect(socket, &interface, &vrf)
    })?;
    Ok(result)
}

fn create(socket: &mut Socket, options: &Options) -> Result<(Link, u32), Error> {
    let fail = |refusal| Error::of_module("create VRF", &options.name, "vrf", refusal);
    let table = if options.table == 0 {
        let links = rtnl::links(socket).map_err(fail)?;
        let is_used = |table: u32| links.iter().any(|link| link.variant == Variant::Vrf(table));
        (1..u32::MAX).find(|table| !is_used(*table)).unwrap_or(1)
    } else {
        options.table
    };
    let mut batch = Batch::new();
    NewLink { up: true, ..NewLink::new(&options.name, Kind::Vrf { table }) }.add(&mut batch);
    socket.request(batch).map_err(fail)?;
    find(socket, &options.name)?.ok_or_else(|| fail(rustix::io::Errno::NODEV.into()))
}

/// Makes the link a port. The kernel then deletes its routes through gateways and its IPv6 addresses, which are restored.
fn connect(socket: &mut Socket, name: &str, (vrf, table): &(Link, u32)) -> Result<(), Error> {
    let fail = |refusal| Error::kernel("connect to VRF", name, refusal);
    let link = pod::link(socket, name)?;
    if link.master != 0 {
        return Err(Error::config("vrf", format!("{name} is a port of another link")));
    }
    let global_v6 = |socket: &mut Socket| -> Result<Vec<rtnl::Address>, Error> {
        let mut all = rtnl::addresses(socket).map_err(fail)?;
        all.retain(|a| a.link == link.index && a.address.address.is_ipv6() && a.scope == rtnl::SCOPE_UNIVERSE);
        Ok(all)
    };
    let before = global_v6(socket)?;
    let mut routes = rtnl::routes(socket).map_err(fail)?;
    routes.retain(|r| {
        r.link == link.index
            && r.scope == rtnl::SCOPE_UNIVERSE
            && r.table == rtnl::TABLE_MAIN
            && r.kind == 1
            && r.protocol != rtnl::PROTOCOL_KERNEL
    });
    let mut batch = Batch::new();
    Change { master: Some(vrf.index), ..Change::default() }.of(&mut batch, link.index);
    socket.request(batch).map_err(fail)?;
    let after = global_v6(socket)?;
    let mut batch = Batch::new();
    for address in before.iter().filter(|b| !after.iter().any(|a| a.address == b.address)) {
        // Detection has taken place before.
        rtnl::add_address(&mut batch, link.index, address.address);
    }
    for route in routes {
        Route { table: *table, ..route }.add(&mut batch, AddRoute::Replace);
    }
    if batch.is_empty() { Ok(()) } else { socket.request(batch).map_err(fail) }
}

pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    let options = parse(request)?;
    let Some(namespace) = &request.namespace else { return Ok(()) };
    let interface = request.interface.clone();
    pod::visit(namespace, move |socket| {
        let Some((vrf, _)) = find(socket, &options.name)? else { return Ok(()) };
        let fail = |refusal| Error::kernel("disconnect from VRF", &interface, refusal);
        let links = rtnl::links(socket).map_err(fail)?;
        let mut batch = Batch::new();
        let mut ports: Vec<&Link> = links.iter().filter(|link| link.master == vrf.index).collect();
        if let Some(at) = ports.iter().position(|link| link.name == interface) {
            Change { master: Some(0), ..Change::default() }.of(&mut batch, ports.remove(at).index);
        }
        if ports.is_empty() {
            rtnl::delete_by_index(&mut batch, vrf.index);
        }
        if batch.is_empty() { Ok(()) } else { socket.request(batch).map_err(fail) }
    })
}

pub(crate) fn check(request: &Request) -> Result<(), Error> {
    let options = parse(request)?;
    request.required_previous()?;
    let interface = request.interface.clone();
    pod::visit(request.namespace()?, move |socket| {
        let missing = || Error::differs(&options.name, "does not exist");
        let (vrf, _) = find(socket, &options.name)?.ok_or_else(missing)?;
        let link = pod::link(socket, &interface)?;
        if link.master == vrf.index { Ok(()) } else { Err(Error::differs(&interface, "is not a port of the VRF")) }
    })
}
