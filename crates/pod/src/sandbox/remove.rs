//! `RemovePodSandbox`: stopped if it was not, its containers removed, then nothing is left of it.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{stop::stop_locked, teardown::teardown};
use crate::{Error, ErrorKind, container, engine::Inner};

/// Removes it; an unknown one succeeds.
pub(crate) async fn remove(engine: &Arc<Inner>, id: &str) -> Result<(), Error> {
    let sandbox = match engine.sandbox(id) {
        Ok(sandbox) => sandbox,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let told = |e: Error| e.during(format_args!("remove pod {}", sandbox.id()));
    let _alone = sandbox.gate.write().await;
    if engine.sandbox(sandbox.id()).is_err() {
        // Another call was quicker.
        return Ok(());
    }
    stop_locked(engine, &sandbox).await?;
    let containers = engine.containers_of(sandbox.id());
    let removals = containers.iter().map(|container| container::remove::remove(engine, container.id()));
    for removed in join_all(removals).await {
        removed.map_err(told)?;
    }
    teardown(engine, &sandbox).await.map_err(told)
}
