//! The exit of a container's init process, as the monitor or the kernel reports it.

use std::sync::{Arc, PoisonError};

use monitor_api::ExitStatus;

use super::{Cause, Container, ContainerPhase, ContainerRecord};
use crate::{Error, clock, engine::Inner, process};

/// Releases what the container holds and records its exit. While a start is in progress, the start decides the outcome.
pub(crate) fn handle_exit(engine: &Inner, container: &Container, status: ExitStatus) -> Result<(), Error> {
    let status = give_up_custody(engine, container, status);
    record_exit(engine, container, status)
}

/// Closes the descriptors that an exited container no longer needs. Returns its status, with the exit code if this
/// process could collect it.
pub(crate) fn give_up_custody(engine: &Inner, container: &Container, mut status: ExitStatus) -> ExitStatus {
    if status.code.is_none() {
        let custody = engine.monitor.custody();
        status.code = reaped(container, || custody.with_pidfd(container.id(), |pidfd| process::reap(pidfd)).flatten());
    }
    engine.monitor.custody().exited(container.id(), &status);
    status
}

/// Records the exit: the second half of [`handle_exit`]. Waits for the tmpfs.
pub(crate) fn record_exit(engine: &Inner, container: &Container, status: ExitStatus) -> Result<(), Error> {
    container.update(&engine.records, |record| match record.phase {
        ContainerPhase::Exited => false,
        // The create or start in progress records its own outcome first.
        ContainerPhase::Creating | ContainerPhase::Starting => {
            engine.metrics.count_exit(&status);
            record.early_exit = Some(status);
            true
        }
        _ => {
            engine.metrics.count_exit(&status);
            mark_exited(record, &status);
            true
        }
    })
}

/// Changes a record to that of a container that exited with this status.
pub(crate) fn mark_exited(record: &mut ContainerRecord, status: &ExitStatus) {
    let cause = Cause::new(status, &record.sent);
    mark_ended(record, status, cause);
}

/// Like [`mark_exited`], for this cause.
pub(super) fn mark_ended(record: &mut ContainerRecord, status: &ExitStatus, cause: Cause) {
    record.phase = ContainerPhase::Exited;
    record.finished_at = if status.at == 0 { clock::now() } else { status.at };
    record.exit_code = status.code;
    record.signal = status.signal;
    record.early_exit = None;
    record.enter("ended");
    record.cause = Some(cause);
    cause.reason(status.code).clone_into(&mut record.reason);
    cause.message().clone_into(&mut record.message);
}

/// Returns the status of an exit that nobody observed, because the daemon and the monitor were both gone at the time.
pub(crate) fn unknown_exit() -> ExitStatus {
    ExitStatus { code: None, signal: None, oom_killed: false, at: clock::now() }
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
pub(crate) fn reap_on_exit(engine: &Arc<Inner>, id: &str) {
    let Some(pidfd) = engine.monitor.custody().pidfd_to_await(id) else { return };
    // `None` for a pod's init process, whose exit code nobody needs.
    let container = engine.container(id).ok();
    tokio::spawn(async move {
        if process::ended(&pidfd).await.is_ok() {
            match container {
                Some(container) => reaped(&container, || process::reap(pidfd)),
                None => process::reap(pidfd),
            };
        }
    });
}

/// Waits until the container exited, and returns its exit code.
pub(crate) async fn wait(engine: &Inner, id: &str) -> Result<Option<i32>, Error> {
    let container = engine.container(id)?;
    let (id, mut watch) = (container.id().to_owned(), container.watch());
    // Not kept: if the container is removed before it was started, the sender is dropped and the wait ends.
    drop(container);
    match watch.wait_for(|record| record.phase == ContainerPhase::Exited).await {
        Ok(record) => Ok(record.exit_code),
        Err(_) => Err(Error::not_found("container", &id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_those_that_kubelet_knows() {
        let reason = |code, oom_killed| {
            let mut record = ContainerRecord::default();
            mark_exited(&mut record, &ExitStatus { code, signal: None, oom_killed, at: 5 });
            assert_eq!((record.phase, record.finished_at), (ContainerPhase::Exited, 5));
            record.reason
        };
        assert_eq!(reason(Some(0), false), "Completed");
        assert_eq!(reason(Some(3), false), "Error");
        assert_eq!(reason(Some(137), true), "OOMKilled");
        assert_eq!(reason(None, false), "Unknown");
    }
}
