//! `RemoveContainer`: kills the container if it runs, then removes its cgroup, its writable layer and, last, its
//! record.

use std::sync::{Arc, atomic::Ordering};

use super::{announce_stop::announce_stop, driver, stop};
use crate::{
    ContainerId, Error, ErrorKind, Selects,
    operation::{Undo, failpoint, with_timeout},
    parts::{Change, Parts},
    plugins,
    store::{Container, ContainerPhase},
};

/// Removes a container, or waits for a removal that is in progress. Succeeds for an unknown container.
pub(crate) async fn remove(parts: &Arc<Parts>, id: &(impl Selects<ContainerId> + ?Sized)) -> Result<(), Error> {
    let container = match parts.registry.container(id) {
        Ok(container) => container,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let work = {
        let (parts, container) = (Arc::clone(parts), Arc::clone(&container));
        || async move { remove_unless_gone(&parts, &container).await }
    };
    parts.flights.change.run(Change::RemoveContainer(container.id().clone()), work).await
}

async fn remove_unless_gone(parts: &Arc<Parts>, container: &Arc<Container>) -> Result<(), Error> {
    let with_context = |e: Error| e.during(format_args!("remove container {}", container.id()));
    let stage = || format!("its stage is {:?}", container.record().stage);
    let _busy = with_timeout(container.busy.lock(), stage).await.map_err(with_context)?;
    if parts.registry.container(container.id()).is_err() {
        // Another request removed it in the meantime.
        return Ok(());
    }
    let phase = container.record().phase;
    if !matches!(phase, ContainerPhase::Exited | ContainerPhase::Creating) {
        stop::kill(parts, container).await.map_err(with_context)?;
    }
    parts.observe.failures.add_removed(container);
    announce_stop(parts, container).await;
    let removal_messages = plugins::removal_messages(parts, container).await;
    remove_locked(parts, container).await.map_err(with_context)?;
    plugins::removed(parts, container, removal_messages).await;
    Ok(())
}

/// Removes a container's resources, then its record. Every step is idempotent. The caller holds the lock `busy`.
pub(crate) async fn remove_locked(parts: &Arc<Parts>, container: &Arc<Container>) -> Result<(), Error> {
    remove_resources(parts, container).await.inspect_err(|_| {
        // In any other phase a caller requested the removal and will retry.
        if container.record().phase == ContainerPhase::Creating {
            parts.cleanup_pending.store(true, Ordering::Relaxed);
        }
    })?;
    parts.forget_container(container);
    Ok(())
}

/// Removes the cgroup of a container that a dead monitor left over.
async fn remove_leftover_group(parts: &Arc<Parts>, container: &Arc<Container>) -> Result<(), Error> {
    let record = container.record();
    if let (Some(path), true, ContainerPhase::Creating) = (&record.cgroup, record.owns_cgroup, record.phase) {
        return parts.node.remove_unnamed_group(path.clone()).await;
    }
    parts.node.remove_group(container.cgroup(), container.id().as_str()).await
}

async fn remove_resources(parts: &Arc<Parts>, container: &Arc<Container>) -> Result<(), Error> {
    let id = container.id();
    let mut undo = Undo::default();
    container.stage("remove its cgroup and writable layer");
    let deleted = parts.monitor.delete(id.as_str()).await;
    let is_deleted = deleted.is_ok();
    undo.step("forget its process and remove its cgroup", async { deleted }).await;
    // Its runtime must not forget a container that may still have processes.
    if is_deleted {
        undo.step("remove its state in its runtime", driver::remove(parts, container)).await;
    }
    undo.step("remove what a dead monitor left over", remove_leftover_group(parts, container)).await;
    parts.node.forget_scope(&container.metadata.cgroup);
    failpoint::reach("remove.deleted");
    let discard = {
        let (images, id) = (parts.node.images.clone(), id.to_owned());
        move || images.discard(id.as_str()).map_err(Error::from)
    };
    undo.step("remove its writable layer", parts.node.images.disk().run(discard)).await;
    failpoint::reach("remove.discarded");
    undo.finish()?;
    parts.registry.records.remove(id)
}
