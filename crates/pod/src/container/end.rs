//! The end of a container's process, as the monitor or the kernel tells it.

use std::sync::{Arc, PoisonError};

use monitor_api::ExitStatus;

use super::{Container, ContainerPhase, ContainerRecord};
use crate::{Error, clock, engine::Inner, process};

/// Reason of a container of which the OOM killer ended a process: kubelet's word.
pub(crate) const OOM_KILLED: &str = "OOMKilled";

/// Notes how it ended. While `start` is not done, that decides.
pub(crate) fn ended(engine: &Inner, container: &Container, status: ExitStatus) -> Result<(), Error> {
    let status = give_up_custody(engine, container, status);
    record(engine, container, status)
}

/// Lets go of what an ended container needs no more. Returns its status with the exit code, where this process has it.
pub(crate) fn give_up_custody(engine: &Inner, container: &Container, mut status: ExitStatus) -> ExitStatus {
    if status.code.is_none() {
        let custody = engine.monitor.custody();
        status.code = reaped(container, || custody.of_pidfd(container.id(), |pidfd| process::reap(pidfd)).flatten());
    }
    engine.monitor.custody().exited(container.id(), &status);
    status
}

/// The second half of [`ended`]: waits for the tmpfs.
pub(crate) fn record(engine: &Inner, container: &Container, status: ExitStatus) -> Result<(), Error> {
    container.update(&engine.records, |record| match record.phase {
        ContainerPhase::Exited => false,
        // Whoever makes or starts it says first how that went.
        ContainerPhase::Creating | ContainerPhase::Starting => {
            engine.figures.count_end(&status);
            record.early_end = Some(status);
            true
        }
        _ => {
            engine.figures.count_end(&status);
            finish(record, &status);
            true
        }
    })
}

/// The record of a container that ended so.
pub(crate) fn finish(record: &mut ContainerRecord, status: &ExitStatus) {
    record.phase = ContainerPhase::Exited;
    record.finished_at = if status.at == 0 { clock::now() } else { status.at };
    record.exit_code = status.code;
    record.signal = status.signal;
    record.early_end = None;
    record.enter("ended");
    let (reason, message) = match (status.oom_killed, status.code) {
        (true, _) => (OOM_KILLED, "a process was killed: the container was out of memory".to_owned()),
        (false, Some(0)) => ("Completed", String::new()),
        (false, Some(_)) => ("Error", String::new()),
        (false, None) => ("Unknown", "it ended while nobody could see how".to_owned()),
    };
    reason.clone_into(&mut record.reason);
    record.message = message;
}

/// An end nobody saw: both processes were gone at the time.
pub(crate) fn unseen() -> ExitStatus {
    ExitStatus { code: None, signal: None, oom_killed: false, at: clock::now() }
}

/// The exit code of one that is a child of this process now. The monitor may tell of its end before we saw it or after,
/// and only one call gets the code from the kernel: the other has it from there.
fn reaped(container: &Container, reap: impl FnOnce() -> Option<i32>) -> Option<i32> {
    let mut code = container.reaped.lock().unwrap_or_else(PoisonError::into_inner);
    *code = code.or_else(reap);
    *code
}

/// After a monitor's death its containers are children of this process (or of the init of the machine): whoever is not
/// reaped by us has no exit code for the new monitor either. By pidfd, so that nobody else's child is taken.
pub(crate) fn reap_when_over(engine: &Arc<Inner>, id: &str) {
    let Some(pidfd) = engine.monitor.custody().pidfd_to_await(id) else { return };
    // A pod's init has no code that anybody asks for.
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

/// Resolves when it ended.
pub(crate) async fn wait(engine: &Inner, id: &str) -> Result<Option<i32>, Error> {
    let container = engine.container(id)?;
    let (id, mut watch) = (container.id().to_owned(), container.watch());
    // Not held: one that is removed while it waits for its start ends the wait.
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
    fn reasons_are_the_words_that_kubelet_knows() {
        let told = |code, oom_killed| {
            let mut record = ContainerRecord::default();
            finish(&mut record, &ExitStatus { code, signal: None, oom_killed, at: 5 });
            assert_eq!((record.phase, record.finished_at), (ContainerPhase::Exited, 5));
            record.reason
        };
        assert_eq!(told(Some(0), false), "Completed");
        assert_eq!(told(Some(3), false), "Error");
        assert_eq!(told(Some(137), true), "OOMKilled");
        assert_eq!(told(None, false), "Unknown");
    }
}
