//! The kernel's part of an agent: blocking, with the lock of the overlay.

use std::sync::atomic::{AtomicBool, Ordering};

use ::overlay::{Error, Overlay, Peers, Record, Settings, converge, lock, remove};
use rtnl::netlink::{Batch, Socket};

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

/// Removes an overlay that no pod uses: endpoint, routes, rules, bridge and record; returns the lease of its record, or zero.
/// `None` if a pod uses it: one on record, or a port of the bridge. With a successor of the same name the record is its.
pub(super) fn clean_up(
    socket: &mut Socket,
    settings: &Settings,
    has_successor: bool,
    is_used: impl FnOnce(&str) -> bool,
) -> Result<Option<i64>, Error> {
    let (directory, name) = (&settings.state_directory, &settings.name);
    let _lock = lock(directory, name)?;
    if is_used(name) || !delete_bridge(socket, settings.id)? {
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

/// Deletes the bridge of an overlay, unless it has another name; returns false if it has a port.
fn delete_bridge(socket: &mut Socket, id: u32) -> Result<bool, Error> {
    let name = cni_plugins::overlay_bridge(id);
    let fail =
        |refusal| Error::Kernel { operation: "delete", object: name.clone(), cause: std::io::Error::from(refusal) };
    let links = rtnl::links(socket).map_err(fail)?;
    let Some(bridge) = links.iter().find(|link| link.name == name && link.kind == "bridge") else { return Ok(true) };
    if links.iter().any(|link| link.master == bridge.index) {
        return Ok(false);
    }
    let mut batch = Batch::new();
    rtnl::delete_by_index(&mut batch, bridge.index);
    socket.request(batch).map(|()| true).map_err(fail)
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
