//! The kernel's part of an agent: blocking, with the lock of the overlay.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
};

use ::overlay::{Definition, Error, Overlay, Peers, PublicKey, Record, Settings, converge, lock, remove};
use rtnl::{
    Route, TABLE_MAIN,
    netlink::{Refusal, Socket},
    subnet::bits,
};

/// How many nodes that were refused are named.
const NAMED_MAX: usize = 3;

/// Makes the kernel's configuration that of the nodes in the configuration.
pub(super) fn keep(socket: &mut Socket, settings: &Settings, stopped: &AtomicBool) -> Result<(), Error> {
    let _lock = lock(&settings.state_directory, &settings.name)?;
    if stopped.load(Ordering::Acquire) {
        return Ok(());
    }
    let (overlay, peers) = settings.resolve(socket)?;
    converge(socket, &overlay, &peers).map(drop)
}

/// Writes the record if it has changed, and configures the kernel; returns which nodes were refused, and why. An agent that was
/// stopped in the meantime changes nothing.
pub(super) fn apply(
    socket: &mut Socket,
    settings: &Settings,
    record: Record,
    stopped: &AtomicBool,
) -> Result<String, Error> {
    let (directory, name) = (&settings.state_directory, &settings.name);
    let overlay = Overlay::new(record.definition.clone())?;
    let (peers, refused) = Peers::select(&overlay, record.peers);
    let record = Record { peers: peers.clone().into_vec(), ..record };
    let _lock = lock(directory, name)?;
    if stopped.load(Ordering::Acquire) {
        return Ok(String::new());
    }
    if !Record::read(directory, name).is_ok_and(|current| current.as_ref() == Some(&record)) {
        record.write(directory, name)?;
    }
    converge(socket, &overlay, &peers)?;
    let mut reasons: Vec<String> = refused.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    if refused.len() > NAMED_MAX {
        reasons.push(format!("and {} more", refused.len() - NAMED_MAX));
    }
    Ok(reasons.join("; "))
}

/// Creates the endpoint of an encrypted overlay unless it exists, and returns its public key. An agent that was stopped in the
/// meantime changes nothing.
pub(super) fn public_key(
    socket: &mut Socket,
    settings: &Settings,
    definition: Definition,
    stopped: &AtomicBool,
) -> Result<Option<PublicKey>, Error> {
    let overlay = Overlay::new(definition)?;
    let _lock = lock(&settings.state_directory, &settings.name)?;
    if stopped.load(Ordering::Acquire) {
        return Ok(None);
    }
    ::overlay::public_key(socket, &overlay)
}

/// Removes an overlay that no pod uses: endpoint, routes, rules and record; returns the lease of its record, or zero. `None` if
/// a pod uses it: one on record, or one that another engine attached, which the node has a route to.
/// With a successor of the same name the record is its.
pub(super) fn clean_up(
    socket: &mut Socket,
    settings: &Settings,
    has_successor: bool,
    is_used: impl FnOnce(&str) -> bool,
) -> Result<Option<i64>, Error> {
    let (directory, name) = (&settings.state_directory, &settings.name);
    let _lock = lock(directory, name)?;
    if is_used(name) || has_pods(socket, settings)? {
        return Ok(None);
    }
    remove(socket, settings.id, name)?;
    if has_successor {
        return Ok(Some(0));
    }
    let lease = Record::read(directory, name).ok().flatten().map_or(0, |record| record.lease);
    Record::remove(directory, name)?;
    Ok(Some(lease))
}

/// Reports whether the node has a route to an address of its subnets of the network through a veth pair.
fn has_pods(socket: &mut Socket, settings: &Settings) -> Result<bool, Error> {
    let fail = |refusal: Refusal| Error::Kernel {
        operation: "list",
        object: "routes of the node".into(),
        cause: std::io::Error::from(refusal),
    };
    let record = Record::read(&settings.state_directory, &settings.name).ok().flatten();
    let subnets = match record {
        Some(record) => record.definition.subnets,
        None => settings.resolve(socket).map(|(overlay, _)| overlay.subnets().to_vec()).unwrap_or_default(),
    };
    let links = rtnl::links(socket).map_err(fail)?;
    let pairs: HashSet<u32> = links.iter().filter(|link| link.kind == "veth").map(|link| link.index).collect();
    let leads_to_pod = |route: &Route| {
        let is_one = route.table == TABLE_MAIN && route.to.prefix == bits(route.to.address);
        is_one && pairs.contains(&route.link) && subnets.iter().any(|subnet| subnet.contains(route.to.address))
    };
    Ok(rtnl::routes(socket).map_err(fail)?.iter().any(leads_to_pod))
}

/// Runs work with a netlink socket of the node.
pub(super) async fn in_kernel<T: Send + 'static>(
    work: impl FnOnce(&mut Socket) -> Result<T, Error> + Send + 'static,
) -> Result<T, String> {
    let run = || {
        let mut socket = Socket::route().map_err(|error| format!("open rtnetlink socket: {error}"))?;
        work(&mut socket).map_err(|error| error.to_string())
    };
    offload::blocking(run).await.map_err(|bug| bug.to_string())?
}
