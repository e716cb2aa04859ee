//! `RemoveContainer`: killed if it runs, then its cgroup, writable layer and record go, the record last.

use std::sync::{Arc, atomic::Ordering};

use super::{Container, ContainerPhase, stop};
use crate::{
    Error, ErrorKind, engine::Inner, failpoint, joined::Operation, lanes::patiently, remains, state::Kind, undo::Undo,
};

/// Removes it; an unknown one succeeds. Who asks again joins.
pub(crate) async fn remove(engine: &Arc<Inner>, id: &str) -> Result<(), Error> {
    let container = match engine.container(id) {
        Ok(container) => container,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let work = {
        let (engine, container) = (Arc::clone(engine), Arc::clone(&container));
        || async move { begin(&engine, &container).await }
    };
    engine.joined.join(Operation::RemoveContainer, container.id(), work).await
}

async fn begin(engine: &Arc<Inner>, container: &Arc<Container>) -> Result<(), Error> {
    let told = |e: Error| e.during(format_args!("remove container {}", container.id()));
    let doing = || format!("it is at {:?}", container.record().stage);
    let _alone = patiently(container.busy.lock(), doing).await.map_err(told)?;
    if engine.container(container.id()).is_err() {
        // Another call was quicker.
        return Ok(());
    }
    let phase = container.record().phase;
    if !matches!(phase, ContainerPhase::Exited | ContainerPhase::Creating) {
        stop::kill(engine, container).await.map_err(told)?;
    }
    engine.failures.removed(container);
    take_away(engine, container).await.map_err(told)
}

/// What stands behind it, then its record. Every step is idempotent; for whoever has its lock.
pub(crate) async fn take_away(engine: &Arc<Inner>, container: &Arc<Container>) -> Result<(), Error> {
    take_all(engine, container).await.inspect_err(|_| {
        // Others are removed again by those who want them gone.
        if container.record().phase == ContainerPhase::Creating {
            engine.unfinished.store(true, Ordering::Relaxed);
        }
    })?;
    engine.forget_container(container);
    Ok(())
}

async fn take_all(engine: &Arc<Inner>, container: &Arc<Container>) -> Result<(), Error> {
    let id = container.id();
    let mut undo = Undo::default();
    container.stage("remove its cgroup and writable layer");
    undo.step("forget its process and remove its cgroup", engine.monitor.delete(id)).await;
    let group = remains::end_group(engine, container.metadata.cgroup.clone(), id);
    undo.step("end what a monitor that died left of it", group).await;
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
