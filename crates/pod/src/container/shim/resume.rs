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
use crate::{Error, container::external::settle, parts::Parts, store::Container};

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
                let settled = match status {
                    Status::Running => settle(&parts, &container, true).await,
                    Status::Created => settle(&parts, &container, false).await,
                    Status::Stopped(_) | Status::Unknown => Ok(()),
                };
                if let Err(error) = settled {
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
