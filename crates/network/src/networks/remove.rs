//! Removes networks.

use std::{fs, io};

use crate::{Error, Network, NetworkDefinition, network::Inner};

impl Network {
    /// Removes a named network with its bridge. Fails while a pod is attached, or is being attached.
    ///
    /// # Errors
    /// [`Error::NetworkMissing`], [`Error::NetworkInUse`], or the error of the kernel or the disk; then call again.
    pub async fn remove_network(&self, query: &str) -> Result<(), Error> {
        let id = self.inner.named.get(query)?.id.clone();
        // Links that pods left, and their addresses, are removed in the background.
        self.inner.settle().await;
        // Another request may remove it first.
        self.inner.change("remove", query, move |inner| remove(inner, &*inner.named.get(&id)?)).await
    }
}

fn remove(inner: &Inner, definition: &NetworkDefinition) -> Result<(), Error> {
    let in_use = |pods: Vec<String>| Error::NetworkInUse { network: definition.name.clone(), pods };
    if !inner.named.leave(&definition.id) {
        return Err(in_use(Vec::new()));
    }
    let pods = inner.endpoints_of(definition).map(|endpoints| endpoints.into_iter().map(|one| one.pod_name).collect());
    match pods {
        Ok(pods) if Vec::is_empty(&pods) => {}
        other => {
            inner.named.stay(&definition.id);
            return Err(other.map_or_else(|error| error, in_use));
        }
    }
    // The definition is deleted last: after a crash the network still exists, and can be removed again.
    let removed = remove_objects(inner, definition).and_then(|()| inner.named.delete(&definition.id));
    removed.inspect_err(|_| inner.named.stay(&definition.id))
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
