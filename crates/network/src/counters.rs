//! Interface counters of pods.

use std::collections::HashMap;

use crate::{Counters, Error, attachment_key::INTERFACE, bridge::host_link};
use rtnl::netlink::Socket;

/// Returns the counters of all links except `lo`. Opens a new socket for each call, because an open socket keeps its
/// network namespace alive.
pub(crate) fn of_namespace(ns: &netns::Namespace) -> Result<Vec<Counters>, Error> {
    let links = ns.enter(|| {
        let mut socket = Socket::route().map_err(|e| Error::kernel("open", "rtnetlink socket in the pod", e))?;
        rtnl::links(&mut socket).map_err(|e| Error::kernel("list", "links of the pod", e))
    })??;
    Ok(links.into_iter().filter(|link| !link.loopback).map(|link| link.counters).collect())
}

/// Counters read from the node's ends of the pods' veth pairs. One dump returns the counters of all pods, and no
/// namespace is entered.
#[derive(Debug)]
pub(crate) struct NodeEnds {
    socket: Socket,
    /// Link index of the node's end, by sandbox; `None` for a sandbox without one.
    indices: HashMap<String, Option<u32>>,
}

impl NodeEnds {
    /// Opens the socket in the network namespace of the calling thread.
    pub(crate) fn open() -> Result<Self, Error> {
        let socket = Socket::route().map_err(|e| Error::kernel("open", "rtnetlink socket", e))?;
        Ok(Self { socket, indices: HashMap::new() })
    }

    /// Returns the counters of those of these sandboxes that have a link. They must be attached already.
    pub(crate) fn counters(&mut self, sandboxes: &[&str]) -> Result<HashMap<String, Counters>, Error> {
        self.refresh_indices(sandboxes)?;
        if self.indices.values().all(Option::is_none) {
            return Ok(HashMap::new());
        }
        let dump = rtnl::counters(&mut self.socket).map_err(|e| Error::kernel("list", "counters of links", e))?;
        let mut by_index: HashMap<u32, Counters> = dump.into_iter().collect();
        let counters = self.indices.iter().filter_map(|(sandbox, index)| {
            let counters = by_index.remove(&(*index)?)?;
            Some((sandbox.clone(), counters.mirrored(INTERFACE)))
        });
        Ok(counters.collect())
    }

    fn refresh_indices(&mut self, sandboxes: &[&str]) -> Result<(), Error> {
        let requested: std::collections::HashSet<&str> = sandboxes.iter().copied().collect();
        self.indices.retain(|sandbox, _| requested.contains(sandbox.as_str()));
        let new: Vec<&str> = sandboxes.iter().copied().filter(|sandbox| !self.indices.contains_key(*sandbox)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let links = rtnl::links(&mut self.socket).map_err(|e| Error::kernel("list", "links", e))?;
        let by_name: HashMap<String, u32> = links.into_iter().map(|link| (link.name, link.index)).collect();
        for sandbox in new {
            self.indices.insert(sandbox.to_owned(), by_name.get(&host_link(sandbox)).copied());
        }
        Ok(())
    }
}
