//! Removes networks.

use std::{fs, io, sync::Arc, time::Duration};

use tracing::Instrument;

use crate::{Driver, Error, Network, NetworkDefinition, deferred::CONFLICT, network::Inner};

/// Longest time that the removal of an overlay is waited for, which includes requests to etcd that may not be answered.
const OVERLAY_TIMEOUT: Duration = Duration::from_secs(60);

impl Network {
    /// Removes a named network with its bridge. Fails while a pod is attached, or is being attached. An overlay is removed
    /// from this node, and with the last node as a whole. The operation runs to completion even if the caller stops waiting.
    ///
    /// # Errors
    /// [`Error::NetworkMissing`], [`Error::NetworkInUse`], or the error of the kernel or the disk; then call again.
    pub async fn remove_network(&self, query: &str) -> Result<(), Error> {
        let (inner, id) = (Arc::clone(&self.inner), self.inner.named.get(query)?.id.clone());
        let query = query.to_owned();
        let work = async move {
            // Links that pods left, and their addresses, are removed in the background.
            inner.settle(CONFLICT).await;
            // Another request may remove it first.
            let leaving = id.clone();
            let left = inner.change("remove", &query, move |inner| leave(inner, &*inner.named.get(&leaving)?)).await;
            let removed = match left {
                Ok(()) => remove(&inner, &query, &id).await,
                Err(error) => Err(error),
            };
            if removed.is_err() {
                inner.named.stay(&id);
            }
            removed
        };
        let finished = tokio::spawn(work.in_current_span()).await;
        finished.map_err(|e| Error::kernel("remove", "network", io::Error::other(e)))?
    }
}

/// Prevents further attachments; refuses if there is one.
fn leave(inner: &Inner, definition: &NetworkDefinition) -> Result<(), Error> {
    let in_use = |pods: Vec<String>| Error::NetworkInUse { network: definition.name.clone(), pods };
    if !inner.named.leave(&definition.id) {
        return Err(in_use(Vec::new()));
    }
    let pods = inner.endpoints_of(definition).map(|endpoints| endpoints.into_iter().map(|one| one.pod_name).collect());
    match pods {
        Ok(pods) if Vec::is_empty(&pods) => Ok(()),
        other => {
            inner.named.stay(&definition.id);
            Err(other.map_or_else(|error| error, in_use))
        }
    }
}

async fn remove(inner: &Arc<Inner>, query: &str, id: &str) -> Result<(), Error> {
    let definition = inner.named.get(id)?;
    // The agent does not keep an overlay that is being removed.
    if definition.driver == Driver::Overlay
        && !inner.overlay_passes.gone(&definition.list_name(), OVERLAY_TIMEOUT).await
    {
        let reason = io::Error::new(
            io::ErrorKind::TimedOut,
            "the node still has a route to a pod of it, or the kernel refuses; see the log",
        );
        return Err(Error::kernel("remove", format!("network {query}"), reason));
    }
    // The definition is deleted last: after a crash the network still exists, and can be removed again.
    let remove = move |inner: &Inner| {
        leave(inner, &definition)?;
        remove_objects(inner, &definition).and_then(|()| inner.named.delete(&definition.id))
    };
    inner.change("remove", query, remove).await
}

fn remove_objects(inner: &Inner, definition: &NetworkDefinition) -> Result<(), Error> {
    if let Some(bridge) = definition.bridge() {
        let subnets: Vec<_> = definition.subnets.iter().map(|pool| pool.subnet).collect();
        inner.firewall.remove_network(&bridge, &subnets)?;
        inner.bridges.delete_unused(&bridge)?;
    }
    let leases = inner.leases_directory().join(definition.list_name());
    match fs::remove_dir_all(&leases) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::path("remove", &leases, e)),
        _ => Ok(()),
    }
}
