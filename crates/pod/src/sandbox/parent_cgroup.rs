//! The parent cgroups of pods that name none: one for each cgroup driver, of which the earlier one stays in use by its
//! pods after a change of the configuration.

use std::{sync::Arc, time::Duration};

use crate::{CgroupDriver, parts::Parts};

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
    for driver in [CgroupDriver::Cgroupfs, CgroupDriver::Systemd] {
        // systemd stops a slice later, when a pod may be created in it.
        let is_kept = driver == CgroupDriver::Systemd && parts.node.driver == driver;
        if !is_kept && !parts.registry.sandboxes().iter().any(|sandbox| sandbox.metadata.cgroup_driver == driver) {
            remove(parts, driver).await;
        }
    }
}

/// Removes the cgroup that pods of a driver share. No such pod may exist or be created anymore.
pub(crate) async fn remove(parts: &Parts, driver: CgroupDriver) {
    if let Err(error) = parts.node.remove_cgroup_parent(driver).await {
        tracing::warn!("remove the pods' cgroup without an owner: {error}");
    }
}
