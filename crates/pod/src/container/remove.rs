//! `RemoveContainer`: kills the container if it runs, then removes its cgroup, its writable layer and, last, its
//! record.

use std::sync::{Arc, atomic::Ordering};

use super::{Container, ContainerPhase, stop};
use crate::{
    Error, ErrorKind, concurrency::with_timeout, engine::Inner, failpoint, leftovers, single_flight::Operation,
    state::Kind, undo::Undo,
};

/// Removes a container, or waits for a removal that is in progress. Succeeds for an unknown container.
pub(crate) async fn remove(engine: &Arc<Inner>, id: &str) -> Result<(), Error> {
    let container = match engine.container(id) {
        Ok(container) => container,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let work = {
        let (engine, container) = (Arc::clone(engine), Arc::clone(&container));
        || async move { remove_unless_gone(&engine, &container).await }
    };
    engine.single_flight.run(Operation::RemoveContainer, container.id(), work).await
}

async fn remove_unless_gone(engine: &Arc<Inner>, container: &Arc<Container>) -> Result<(), Error> {
    let with_context = |e: Error| e.during(format_args!("remove container {}", container.id()));
    let stage = || format!("its stage is {:?}", container.record().stage);
    let _busy = with_timeout(container.busy.lock(), stage).await.map_err(with_context)?;
    if engine.container(container.id()).is_err() {
        // Another request removed it in the meantime.
        return Ok(());
    }
    let phase = container.record().phase;
    if !matches!(phase, ContainerPhase::Exited | ContainerPhase::Creating) {
        stop::kill(engine, container).await.map_err(with_context)?;
    }
    engine.failures.add_removed(container);
    remove_locked(engine, container).await.map_err(with_context)
}

/// Removes a container's resources, then its record. Every step is idempotent. The caller holds the lock `busy`.
pub(crate) async fn remove_locked(engine: &Arc<Inner>, container: &Arc<Container>) -> Result<(), Error> {
    remove_resources(engine, container).await.inspect_err(|_| {
        // In any other phase a caller requested the removal and will retry.
        if container.record().phase == ContainerPhase::Creating {
            engine.cleanup_pending.store(true, Ordering::Relaxed);
        }
    })?;
    engine.forget_container(container);
    Ok(())
}

async fn remove_resources(engine: &Arc<Inner>, container: &Arc<Container>) -> Result<(), Error> {
    let id = container.id();
    let mut undo = Undo::default();
    container.stage("remove its cgroup and writable layer");
    undo.step("forget its process and remove its cgroup", engine.monitor.delete(id)).await;
    let group = leftovers::remove_group(engine, container.metadata.cgroup.clone(), id);
    undo.step("remove what a dead monitor left over", group).await;
    failpoint::reach("remove.deleted");
    let discard = {
        let (images, id) = (engine.images.clone(), id.to_owned());
        move || images.discard(&id).map_err(Error::from)
    };
    undo.step("remove its writable layer", engine.images.disk().run(discard)).await;
    failpoint::reach("remove.discarded");
    undo.finish()?;
    engine.records.remove(Kind::Container, id)
}
