//! Interface counters of a pod.

use crate::{Counters, Error, netlink::Socket, rtnl};

/// Counters of all links but `lo`. The socket is made anew each time: one that is kept would keep the namespace.
pub(crate) fn of(ns: &netns::Namespace) -> Result<Vec<Counters>, Error> {
    let links = ns.enter(|| {
        let mut socket = Socket::route().map_err(|e| Error::kernel("open", "rtnetlink socket in the pod", e))?;
        rtnl::links(&mut socket).map_err(|e| Error::kernel("list", "links of the pod", e))
    })??;
    Ok(links.into_iter().filter(|link| !link.loopback).map(|link| link.counters).collect())
}
