//! Compares the pod's interface, addresses and routes with the previous result.

use rtnl::{Link, netlink::Socket};

use crate::{Error, PluginResult, Request, pod};

/// Compares the pod's interface with the previous result: it is of this kind (any if empty), with the MAC address,
/// addresses and routes of the result. Returns the link.
pub(crate) fn attachment(request: &Request, kind: &'static str) -> Result<Link, Error> {
    let previous = request.required_previous()?;
    let name = request.interface.clone();
    let index = previous.pod_interface(&name, &request.namespace_path).ok_or_else(|| {
        Error::differs(&name, format!("the previous result has no such interface in {}", request.namespace_path))
    })?;
    pod::visit(request.namespace()?, move |socket| {
        let link = find(socket, &name)?;
        if !kind.is_empty() && link.kind != kind {
            return Err(Error::differs(&name, format!("is of kind {:?}, not {kind:?}", link.kind)));
        }
        let mac = &previous.interfaces[index].mac;
        if !mac.is_empty() && !mac.eq_ignore_ascii_case(&link.mac_text()) {
            return Err(Error::differs(&name, format!("MAC address is {}, not {mac}", link.mac_text())));
        }
        addresses(socket, &link, &previous)?;
        routes(socket, &previous)?;
        Ok(link)
    })
}

/// Returns the pod's link.
pub(crate) fn find(socket: &mut Socket, name: &str) -> Result<Link, Error> {
    let found = rtnl::link_by_name(socket, name).map_err(|e| Error::kernel("find", format!("{name} in the pod"), e))?;
    found.ok_or_else(|| Error::differs(name, "does not exist in the pod"))
}

fn addresses(socket: &mut Socket, link: &Link, previous: &PluginResult) -> Result<(), Error> {
    let all = rtnl::addresses(socket).map_err(|e| Error::kernel("list", "addresses in the pod", e))?;
    for ip in &previous.ips {
        if !all.iter().any(|a| a.link == link.index && a.address == ip.address) {
            return Err(Error::differs(&link.name, format!("has not the address {}", ip.address)));
        }
    }
    Ok(())
}

fn routes(socket: &mut Socket, previous: &PluginResult) -> Result<(), Error> {
    let all = rtnl::routes(socket).map_err(|e| Error::kernel("list", "routes in the pod", e))?;
    for route in &previous.routes {
        let is_same = |found: &rtnl::Route| {
            found.to.network() == route.dst.network()
                && found.to.prefix == route.dst.prefix
                && (route.gw.is_none() || route.dst.prefix == 0 || found.gateway == route.gw)
        };
        if !all.iter().any(is_same) {
            return Err(Error::differs("routes", format!("the route to {} does not exist", route.dst)));
        }
    }
    Ok(())
}
