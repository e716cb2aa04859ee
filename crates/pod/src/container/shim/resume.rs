//! Continues with the container of a shim after a restart of the daemon.

use std::sync::Arc;

use monitor_api::ExitStatus;
use shim::{Exit, Status};

use super::{
    command::from_shim,
    connection::task,
    end::{died, exited},
    leftover_exec::LeftoverExecs,
    log,
    watch::watch,
};
use crate::{
    Error, clock,
    parts::Parts,
    store::{Container, ContainerPhase},
};

/// Continues in a task of its own: a shim that hangs must not delay the start of the daemon.
pub(crate) fn resume(parts: &Arc<Parts>, container: &Arc<Container>) {
    let leftovers = LeftoverExecs::find(parts, container);
    let (parts, container) = (Arc::clone(parts), Arc::clone(container));
    offload::spawn(async move {
        offload::spawn({
            let container = Arc::clone(&container);
            async move { leftovers.kill(&container).await }
        });
        if let Err(error) = log::follow(&parts, &container) {
            tracing::debug!(container = container.id().as_str(), "{error}");
        }
        if let Some(ExitStatus { code: Some(code), at, .. }) = container.record().shim_exit.clone() {
            return exited(&parts, &container, Exit { code, at }).await;
        }
        match status(&container).await {
            Ok(Status::Stopped(exit)) => exited(&parts, &container, exit).await,
            Ok(status) => {
                if let Err(error) = settle(&parts, &container, status).await {
                    tracing::warn!(container = container.id().as_str(), "{error}");
                }
                watch(&parts, &container);
            }
            Err(error) if error.kind == crate::ErrorKind::NotFound => died(&parts, &container, &error.message).await,
            // It may be busy: waiting for its exit shows whether it is dead.
            Err(error) => {
                tracing::warn!(container = container.id().as_str(), "{error}");
                watch(&parts, &container);
            }
        }
    });
}

async fn status(container: &Container) -> Result<Status, Error> {
    Ok(task(container).await?.state("").await.map_err(from_shim)?.status)
}

/// Completes or reverts what the record says: the daemon may have died in the middle of a start.
async fn settle(parts: &Parts, container: &Container, status: Status) -> Result<(), Error> {
    let phase = container.record().phase;
    match (status, phase) {
        (Status::Running, ContainerPhase::Created | ContainerPhase::Starting) => {
            parts.registry.update_container(container, |record| {
                record.phase = ContainerPhase::Running;
                record.enter("running");
                if record.started_at == 0 {
                    record.started_at = clock::now();
                }
                true
            })?;
            parts.monitor.start(container.id().as_str(), || std::future::ready(true)).await
        }
        (Status::Created, ContainerPhase::Starting) => parts.registry.update_container(container, |record| {
            record.phase = ContainerPhase::Created;
            record.enter("created");
            true
        }),
        _ => Ok(()),
    }
}
