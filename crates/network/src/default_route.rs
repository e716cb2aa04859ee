//! Default routes of a pod with several networks.

use std::net::IpAddr;

use rtnl::netlink::{Batch, Refusal, Socket};

use crate::Error;

/// Replaces the pod's default routes, of the families that the gateways have, by routes through these gateways on an
/// interface. Routes of other tables than the main one stay.
pub(crate) fn replace(ns: &netns::Namespace, interface: &str, gateways: &[IpAddr]) -> Result<(), Error> {
    let (interface, gateways) = (interface.to_owned(), gateways.to_vec());
    ns.enter(move || set(&interface, &gateways, true))?
}

/// Adds default routes through these gateways on an interface, unless the pod has default routes.
pub(crate) fn ensure(ns: &netns::Namespace, interface: &str, gateways: &[IpAddr]) -> Result<(), Error> {
    let (interface, gateways) = (interface.to_owned(), gateways.to_vec());
    ns.enter(move || set(&interface, &gateways, false))?
}

fn set(interface: &str, gateways: &[IpAddr], replaces: bool) -> Result<(), Error> {
    let fail = |refusal: Refusal| Error::kernel("set default route", format!("{interface} in the pod"), refusal);
    let mut socket = Socket::route().map_err(|e| Error::kernel("open", "rtnetlink socket in the pod", e))?;
    let link = rtnl::link_by_name(&mut socket, interface).map_err(fail)?;
    let link = link.ok_or_else(|| fail(rustix::io::Errno::NODEV.into()))?;
    let defaults = rtnl::default_routes(&mut socket).map_err(fail)?;
    let mut batch = Batch::new();
    if replaces {
        for route in defaults.iter().filter(|route| gateways.iter().any(|ip| ip.is_ipv4() == route.is_ipv4)) {
            rtnl::delete_default_route(&mut batch, route);
        }
    }
    let is_missing = |gateway: &&IpAddr| replaces || !defaults.iter().any(|route| route.is_ipv4 == gateway.is_ipv4());
    let gateways: Vec<&IpAddr> = gateways.iter().filter(is_missing).collect();
    if gateways.is_empty() {
        return Ok(());
    }
    for gateway in gateways {
        let any = if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        let any = any.parse().map_err(|e: String| Error::config("default route", e))?;
        rtnl::add_route(&mut batch, link.index, any, Some(*gateway));
    }
    socket.request(batch).map_err(fail)
}
