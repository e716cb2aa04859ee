//! `RemovePodSandbox`: stopped if it was not, its containers removed, then nothing is left of it.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{
    Sandbox,
    stop::{alone, stop_locked},
    teardown::teardown,
};
use crate::{Error, ErrorKind, container, engine::Inner, joined::Operation};

/// Removes it; an unknown one succeeds. Who asks again joins.
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
    engine.joined.join(Operation::RemoveSandbox, sandbox.id(), work).await
}

async fn begin(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    let told = |e: Error| e.during(format_args!("remove pod {}", sandbox.id()));
    let _alone = alone(engine, sandbox, "remove").await?;
    if engine.sandbox(sandbox.id()).is_err() {
        // Another call was quicker, or it was being made and is taken back.
        return Ok(());
    }
    stop_locked(engine, sandbox).await?;
    sandbox.stage("remove its containers");
    let containers = engine.containers_of(sandbox.id());
    let removals = containers.iter().map(|container| container::remove::remove(engine, container.id()));
    for removed in join_all(removals).await {
        removed.map_err(told)?;
    }
    sandbox.stage("remove");
    teardown(engine, sandbox).await.map_err(told)
}
