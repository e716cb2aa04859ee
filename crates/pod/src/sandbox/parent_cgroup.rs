//! The parent cgroup of pods that name none.

use std::{sync::Arc, time::Duration};

use crate::parts::Parts;

/// How long a node without pods keeps what pods share.
const IDLE: Duration = Duration::from_secs(1);

/// Removes the cgroup some time after the last pod was removed. Not at once: the next pod would have to create it
/// again.
pub(crate) fn remove_when_idle(parts: &Arc<Parts>) {
    let parts = Arc::downgrade(parts);
    tokio::spawn(async move {
        tokio::time::sleep(IDLE).await;
        if let Some(parts) = parts.upgrade() {
            remove_unless_creating(&parts).await;
        }
    });
}

/// Removes the cgroup, unless an object is being created.
pub(crate) async fn remove_unless_creating(parts: &Parts) {
    let Ok(_creation_lock) = parts.creation_lock.try_write() else { return };
    remove(parts).await;
}

/// Removes the cgroup if no pod exists.
pub(crate) async fn remove(parts: &Parts) {
    if !parts.registry.sandboxes().is_empty() {
        return;
    }
    if let Err(error) = parts.node.remove_cgroup_parent().await {
        tracing::warn!("remove the pods' cgroup without an owner: {error}");
    }
}
