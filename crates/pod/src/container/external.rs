//! Containers without a process of the monitor: those of shims and virtual machines. This process states to the monitor what
//! it would otherwise see itself.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use monitor_api::ExitStatus;

use crate::{
    Error, clock,
    parts::Parts,
    store::{Container, ContainerPhase},
};

/// How long the monitor may take to report an exit that was stated to it, before that is repeated: it first drains the
/// output.
const REPORT_INTERVAL: Duration = Duration::from_secs(15);

/// States the exit to the monitor until that has reported it: it may die before, and the next one knows the container as
/// running.
pub(super) async fn report_exit(parts: Weak<Parts>, container: Arc<Container>, status: ExitStatus) {
    let mut record = container.watch();
    loop {
        let Some(parts) = parts.upgrade() else { return };
        if parts.registry.container(container.id().as_str()).is_err() {
            return;
        }
        if let Err(error) = parts.monitor.end(container.id().as_str(), &status).await {
            tracing::warn!(container = container.id().as_str(), "record its exit: {error}");
        }
        drop(parts);
        let exited = record.wait_for(|record| record.phase == ContainerPhase::Exited);
        if tokio::time::timeout(REPORT_INTERVAL, exited).await.is_ok() {
            return;
        }
    }
}

/// Completes or reverts what the record says about a container that is running, or was created and is not: an earlier
/// daemon may have died in the middle of its start.
pub(super) async fn settle(parts: &Parts, container: &Container, is_running: bool) -> Result<(), Error> {
    match (is_running, container.record().phase) {
        (true, ContainerPhase::Created | ContainerPhase::Starting) => {
            parts.registry.update_container(container, |record| {
                record.mark_started();
                if record.started_at == 0 {
                    record.started_at = clock::now();
                }
                true
            })?;
            parts.monitor.start(container.id().as_str(), || std::future::ready(true)).await
        }
        (false, ContainerPhase::Starting) => parts.registry.update_container(container, |record| {
            record.phase = ContainerPhase::Created;
            record.enter("created");
            true
        }),
        _ => Ok(()),
    }
}
