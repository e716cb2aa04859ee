//! The exit of a container's init process, as the monitor or the kernel reports it.

use std::sync::{Arc, PoisonError};

use monitor_api::ExitStatus;

use crate::{
    ContainerId, Error, Selects,
    parts::Parts,
    process,
    store::{Container, ContainerPhase},
};

/// Releases what the container holds and records its exit. While a start is in progress, the start decides the outcome.
pub(crate) fn handle_exit(parts: &Parts, container: &Container, status: ExitStatus) -> Result<(), Error> {
    let status = give_up_custody(parts, container, status);
    record_exit(parts, container, status)
}

/// Closes the descriptors that an exited container no longer needs. Returns its status, with the exit code if this
/// process could collect it.
pub(crate) fn give_up_custody(parts: &Parts, container: &Container, mut status: ExitStatus) -> ExitStatus {
    if status.code.is_none() {
        let custody = parts.monitor.custody();
        status.code =
            reaped(container, || custody.with_pidfd(container.id().as_str(), |pidfd| process::reap(pidfd)).flatten());
    }
    parts.monitor.custody().exited(container.id().as_str(), &status);
    status
}

/// Records the exit: the second half of [`handle_exit`]. Waits for the tmpfs.
pub(crate) fn record_exit(parts: &Parts, container: &Container, status: ExitStatus) -> Result<(), Error> {
    parts.registry.update_container(container, |record| match record.phase {
        ContainerPhase::Exited => false,
        // The create or start in progress records its own outcome first.
        ContainerPhase::Creating | ContainerPhase::Starting => {
            parts.observe.metrics.count_exit(&status);
            record.early_exit = Some(status);
            true
        }
        _ => {
            parts.observe.metrics.count_exit(&status);
            record.mark_exited(&status);
            true
        }
    })
}

/// Returns the exit code of a container that is now a child of this process. The monitor may report the exit before or
/// after this process observes it, and only one call gets the code from the kernel, so the code is cached in the
/// container.
fn reaped(container: &Container, reap: impl FnOnce() -> Option<i32>) -> Option<i32> {
    let mut code = container.reaped.lock().unwrap_or_else(PoisonError::into_inner);
    *code = code.or_else(reap);
    *code
}

/// Waits in the background for the exit of a container whose monitor died, and reaps it.
///
/// The containers of a dead monitor become children of this process (or of the machine's init). Unless this process
/// reaps them, the new monitor cannot learn their exit codes either. Reaps by pidfd, so that no other child is
/// affected.
pub(crate) fn reap_on_exit(parts: &Arc<Parts>, id: &str) {
    let Some(pidfd) = parts.monitor.custody().pidfd_to_await(id) else { return };
    // `None` for a pod's init process, whose exit code nobody needs.
    let container = parts.registry.container(id).ok();
    tokio::spawn(async move {
        if process::ended(&pidfd).await.is_ok() {
            match container {
                Some(container) => reaped(&container, || process::reap(pidfd)),
                None => process::reap(pidfd),
            };
        }
    });
}

/// Waits until the container exited, and returns its exit code. The wait does not keep the engine.
pub(crate) fn wait<Id: Selects<ContainerId> + ?Sized>(
    parts: &Parts,
    id: &Id,
) -> impl Future<Output = Result<Option<i32>, Error>> + Send + use<Id> {
    // The container is not kept: if it is removed before it was started, the sender is dropped and the wait ends.
    let watched = parts.registry.container(id).map(|container| (container.id().to_owned(), container.watch()));
    async move {
        let (id, mut watch) = watched?;
        match watch.wait_for(|record| record.phase == ContainerPhase::Exited).await {
            Ok(record) => Ok(record.exit_code),
            Err(_) => Err(Error::not_found("container", id.as_str())),
        }
    }
}
