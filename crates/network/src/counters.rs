//! Interface counters of pods.

use std::collections::HashMap;

use crate::{Counters, Error, bridge::host_link, netlink::Socket, network::INTERFACE, rtnl};

/// Counters of all links but `lo`. The socket is made anew each time: one that is kept would keep the namespace.
pub(crate) fn of(ns: &netns::Namespace) -> Result<Vec<Counters>, Error> {
    let links = ns.enter(|| {
        let mut socket = Socket::route().map_err(|e| Error::kernel("open", "rtnetlink socket in the pod", e))?;
        rtnl::links(&mut socket).map_err(|e| Error::kernel("list", "links of the pod", e))
    })??;
    Ok(links.into_iter().filter(|link| !link.loopback).map(|link| link.counters).collect())
}

/// The node's ends of pods' links, whose counters are the pods' seen from the other side: one dump tells those of all
/// pods, and no namespace is entered.
#[derive(Debug)]
pub(crate) struct NodeEnds {
    socket: Socket,
    /// Index of the node's end by sandbox; none for a pod that has none.
    indices: HashMap<String, Option<u32>>,
}

impl NodeEnds {
    /// In the network namespace of the calling thread.
    pub(crate) fn open() -> Result<Self, Error> {
        let socket = Socket::route().map_err(|e| Error::kernel("open", "rtnetlink socket", e))?;
        Ok(Self { socket, indices: HashMap::new() })
    }

    /// Of these sandboxes, which are attached already.
    pub(crate) fn counters(&mut self, sandboxes: &[&str]) -> Result<HashMap<String, Counters>, Error> {
        self.find(sandboxes)?;
        if self.indices.values().all(Option::is_none) {
            return Ok(HashMap::new());
        }
        let dump = rtnl::counters(&mut self.socket).map_err(|e| Error::kernel("list", "counters of links", e))?;
        let mut by_index: HashMap<u32, Counters> = dump.into_iter().collect();
        let found = self.indices.iter().filter_map(|(sandbox, index)| {
            let counters = by_index.remove(&(*index)?)?;
            Some((sandbox.clone(), counters.mirrored(INTERFACE)))
        });
        Ok(found.collect())
    }

    fn find(&mut self, sandboxes: &[&str]) -> Result<(), Error> {
        let wanted: std::collections::HashSet<&str> = sandboxes.iter().copied().collect();
        self.indices.retain(|sandbox, _| wanted.contains(sandbox.as_str()));
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
