//! Counts command line clients that are attached to containers. Removing a container discards the output that its
//! clients have not read yet, so the removal waits for them.

use std::{collections::HashMap, sync::Arc};

use tokio::sync::watch;

use crate::ContainerId;

/// Number of clients by container; containers without clients are not in the map. Clones share the map.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttachedClients(Arc<watch::Sender<HashMap<ContainerId, usize>>>);

/// An attached client; dropping it unregisters the client.
pub struct AttachedClient {
    clients: AttachedClients,
    container: ContainerId,
}

impl AttachedClients {
    /// Registers a client.
    pub(crate) fn register(&self, container: &ContainerId) -> AttachedClient {
        self.0.send_modify(|clients| *clients.entry(container.clone()).or_default() += 1);
        AttachedClient { clients: self.clone(), container: container.clone() }
    }

    /// Resolves when the container has no attached clients.
    pub(crate) async fn wait_for_none(&self, container: &ContainerId) {
        // This fails only if the sender is dropped, and `self` is the sender.
        let _ = self.0.subscribe().wait_for(|clients| !clients.contains_key(container)).await;
    }
}

impl Drop for AttachedClient {
    fn drop(&mut self) {
        self.clients.0.send_modify(|clients| {
            if let Some(count) = clients.get_mut(&self.container) {
                *count -= 1;
                if *count == 0 {
                    clients.remove(&self.container);
                }
            }
        });
    }
}
