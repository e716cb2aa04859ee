//! `loopback`: sets the interface `lo` of the pod up.

use rtnl::{Change, flags::UP, netlink::Batch};

use crate::{Error, Interface, Ip, PluginResult, Request, check, pod};

const NAME: &str = "lo";

pub(crate) fn add(request: &Request) -> Result<PluginResult, Error> {
    let addresses = pod::visit(request.namespace()?, |socket| {
        let link = pod::link(socket, NAME)?;
        let fail = |refusal| Error::kernel("set up", "lo in the pod", refusal);
        let mut batch = Batch::new();
        Change::flag(UP, true).of(&mut batch, link.index);
        socket.request(batch).map_err(fail)?;
        let all = rtnl::addresses(socket).map_err(fail)?;
        Ok(all.into_iter().filter(|a| a.link == link.index).map(|a| a.address).collect::<Vec<_>>())
    })?;
    if let Some(address) = addresses.iter().find(|address| !address.address.is_loopback()) {
        return Err(Error::config("lo", format!("{address} is not a loopback address")));
    }
    if let Some(previous) = &request.previous {
        return Ok(previous.clone());
    }
    let first = |ipv4: bool| addresses.iter().find(move |address| address.address.is_ipv4() == ipv4);
    let ip = |address: &rtnl::subnet::Subnet| Ip { interface: Some(0), address: *address, gateway: None };
    Ok(PluginResult {
        interfaces: vec![Interface {
            name: NAME.into(),
            mac: "00:00:00:00:00:00".into(),
            sandbox: request.namespace_path.clone(),
            ..Interface::default()
        }],
        ips: first(true).into_iter().chain(first(false)).map(ip).collect(),
        ..PluginResult::default()
    })
}

pub(crate) fn delete(request: &Request) -> Result<(), Error> {
    let Some(namespace) = &request.namespace else { return Ok(()) };
    pod::visit(namespace, |socket| {
        let link = pod::link(socket, NAME)?;
        let mut batch = Batch::new();
        Change::flag(UP, false).of(&mut batch, link.index);
        socket.request(batch).map_err(|e| Error::kernel("set down", "lo in the pod", e))
    })
}

pub(crate) fn check(request: &Request) -> Result<(), Error> {
    let link = pod::visit(request.namespace()?, |socket| check::find(socket, NAME))?;
    if link.flags & UP == 0 { Err(Error::differs(NAME, "is down")) } else { Ok(()) }
}
