//! `RemovePodSandbox`: stops the pod if necessary, removes its containers, then everything that belongs to it.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{
    Sandbox,
    stop::{lock_gate, stop_locked},
    teardown::teardown,
};
use crate::{Error, ErrorKind, container, engine::Inner, single_flight::Operation};

/// Removes a pod; unknown ids succeed. Concurrent requests share one removal.
pub(crate) async fn remove(engine: &Arc<Inner>, id: &str) -> Result<(), Error> {
    let sandbox = match engine.sandbox(id) {
        Ok(sandbox) => sandbox,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let work = {
        let (engine, sandbox) = (Arc::clone(engine), Arc::clone(&sandbox));
        || async move { begin(&engine, &sandbox).await }
    };
    engine.single_flight.run(Operation::RemoveSandbox, sandbox.id(), work).await
}

async fn begin(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    let with_context = |e: Error| e.during(format_args!("remove pod {}", sandbox.id()));
    let _gate = lock_gate(engine, sandbox, "remove").await?;
    if engine.sandbox(sandbox.id()).is_err() {
        // It was removed in the meantime, or its creation was rolled back.
        return Ok(());
    }
    stop_locked(engine, sandbox).await?;
    sandbox.stage("remove its containers");
    let containers = engine.containers_of(sandbox.id());
    let removals = containers.iter().map(|container| container::remove::remove(engine, container.id()));
    for removed in join_all(removals).await {
        removed.map_err(with_context)?;
    }
    sandbox.stage("remove");
    teardown(engine, sandbox).await.map_err(with_context)
}
