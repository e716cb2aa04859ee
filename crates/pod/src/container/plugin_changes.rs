//! What NRI plugins request for containers that exist: new limits, and evictions.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use nri::{
    Changes, PendingEviction,
    messages::{self, ContainerUpdate},
};

use tokio::time::Instant;

use super::{stop, update};
use crate::{Error, ErrorKind, parts::Parts, plugins::resources};

/// How long the updates of one request wait for other operations on their containers. Those may themselves wait for the plugin that requests
/// the update, so this is shorter than the time that a plugin has for a request.
const BUSY: Duration = Duration::from_millis(400);
/// Time that an evicted container has to end.
const GRACE: Duration = Duration::from_secs(30);

/// Applies what plugins request in response to an event.
///
/// # Errors
/// If an update fails whose failure is not to be ignored.
pub(crate) async fn apply(parts: &Arc<Parts>, changes: Changes) -> Result<(), Error> {
    let Changes { updates, evictions } = changes;
    evict(parts, evictions);
    let deadline = Instant::now() + BUSY;
    for update in updates {
        let ignored = update.ignore_failure;
        if let Err(error) = apply_update(parts, &update, deadline).await {
            match ignored {
                true => tracing::info!(%error, "an update that an NRI plugin requested failed"),
                false => return Err(error.during("update a container for an NRI plugin")),
            }
        }
    }
    Ok(())
}

/// Applies updates, and returns those that failed.
pub(crate) async fn update_all(parts: &Arc<Parts>, updates: Vec<ContainerUpdate>) -> Vec<ContainerUpdate> {
    let (mut failed, deadline) = (Vec::new(), Instant::now() + BUSY);
    for update in updates {
        if let Err(error) = apply_update(parts, &update, deadline).await {
            tracing::info!(%error, "an update that an NRI plugin requested failed");
            failed.push(update);
        }
    }
    failed
}

async fn apply_update(parts: &Arc<Parts>, request: &ContainerUpdate, deadline: Instant) -> Result<(), Error> {
    let container = known(parts, &request.container_id)?;
    let Some(message) = request.linux.as_ref().and_then(|linux| linux.resources.as_ref()) else { return Ok(()) };
    refuse_classes(message)?;
    let mut new = oci::Resources::default();
    resources::set(message, &mut new);
    let busy = tokio::time::timeout_at(deadline, Arc::clone(&container.busy).lock_owned()).await.map_err(|_| {
        Error::new(
            ErrorKind::Unavailable,
            format!("update container {}: another operation on it is in progress", container.id()),
        )
    })?;
    update::update_locked(parts, &container, new, None, busy).await
}

/// Fails if an update sets a class: only the creation of a container does.
pub(super) fn refuse_classes(resources: &messages::Resources) -> Result<(), Error> {
    let classes = [("block I/O", &resources.blockio_class), ("RDT", &resources.rdt_class)];
    match classes.into_iter().find_map(|(kind, class)| class.as_ref().map(|class| (kind, &class.value))) {
        None => Ok(()),
        Some((kind, class)) => Err(Error::invalid(format!(
            "{kind} class {class:?} of an NRI plugin: the classes of an existing container cannot be changed; set it when \
             the container is created"
        ))),
    }
}

/// Finds a container by its whole id.
fn known(parts: &Parts, id: &str) -> Result<Arc<crate::store::Container>, Error> {
    let container = parts.registry.container(id)?;
    if container.id().as_str() != id {
        return Err(Error::not_found("container", id));
    }
    Ok(container)
}

/// Stops containers in the background, each once at a time: so there are never more of these tasks than containers.
pub(crate) fn evict(parts: &Arc<Parts>, evictions: Vec<PendingEviction>) {
    for eviction in evictions {
        let id = eviction.container_id.as_str();
        let Ok(container) = known(parts, id) else {
            tracing::info!(container = id, "a container that an NRI plugin evicts is not known");
            continue;
        };
        if container.is_evicted.swap(true, Ordering::AcqRel) {
            continue;
        }
        let reason: String = eviction.reason.chars().take(256).collect();
        tracing::warn!(container = id, reason, "an NRI plugin evicts a container");
        let parts = Arc::clone(parts);
        tokio::spawn(async move {
            if let Err(error) = stop::stop(&parts, container.id(), GRACE).await {
                tracing::warn!(%error, "the container that an NRI plugin evicts could not be stopped");
            }
            container.is_evicted.store(false, Ordering::Release);
            drop(eviction);
        });
    }
}
