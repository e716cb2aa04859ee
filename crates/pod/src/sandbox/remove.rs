//! `RemovePodSandbox`: stops the pod if necessary, removes its containers, then everything that belongs to it.

use std::sync::Arc;

use futures_util::future::join_all;
use nri::Event;

use super::{
    stop::{lock_gate, sandbox_last, stop_locked},
    teardown::teardown,
};
use crate::{
    Error, ErrorKind, SandboxId, Selects, container,
    parts::{Change, Parts},
    plugins,
    store::Sandbox,
};

/// Removes a pod; unknown ids succeed. Concurrent requests share one removal.
pub(crate) async fn remove(parts: &Arc<Parts>, id: &(impl Selects<SandboxId> + ?Sized)) -> Result<(), Error> {
    let sandbox = match parts.registry.sandbox(id) {
        Ok(sandbox) => sandbox,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let work = {
        let (parts, sandbox) = (Arc::clone(parts), Arc::clone(&sandbox));
        || async move { begin(&parts, &sandbox).await }
    };
    parts.flights.change.run(Change::RemoveSandbox(sandbox.id().clone()), work).await
}

async fn begin(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    let with_context = |e: Error| e.during(format_args!("remove pod {}", sandbox.id()));
    let _gate = lock_gate(parts, sandbox, "remove").await?;
    if parts.registry.sandbox(sandbox.id()).is_err() {
        // It was removed in the meantime, or its creation was rolled back.
        return Ok(());
    }
    stop_locked(parts, sandbox).await?;
    sandbox.stage("remove its containers");
    let containers = parts.registry.containers_of(sandbox.id());
    for containers in sandbox_last(&containers) {
        let removals = containers.iter().map(|container| container::remove::remove(parts, container.id()));
        for removed in join_all(removals).await {
            removed.map_err(with_context)?;
        }
    }
    sandbox.stage("remove");
    teardown(parts, sandbox).await.map_err(with_context)?;
    plugins::pod_event(parts, Event::RemovePodSandbox, sandbox).await;
    Ok(())
}
