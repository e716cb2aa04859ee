//! Waits for the exit of a container, as its shim reports it.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use shim::{ErrorKind, Exit, Status};

use super::{
    connection::connect,
    end::{died, exited},
};
use crate::{
    parts::Parts,
    process,
    store::{Container, ContainerPhase},
};

/// How often a shim that closed the connection is connected to again before it counts as dead.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);

/// What became of a container.
enum Outcome {
    Exited(Exit),
    Died(String),
    /// Another task handles its end, or the engine was dropped.
    Over,
}

/// Waits for the exit in a task of its own, and handles it. Does nothing if such a task exists.
pub(super) fn watch(parts: &Arc<Parts>, container: &Arc<Container>) {
    if container.shim.is_watched.swap(true, Ordering::AcqRel) {
        return;
    }
    let (parts, container) = (Arc::downgrade(parts), Arc::clone(container));
    offload::spawn(async move {
        let outcome = wait(&parts, &container).await;
        let Some(parts) = parts.upgrade() else { return };
        match outcome {
            Outcome::Exited(exit) => exited(&parts, &container, exit).await,
            Outcome::Died(reason) => died(&parts, &container, &reason).await,
            Outcome::Over => {}
        }
    });
}

async fn wait(parts: &Weak<Parts>, container: &Arc<Container>) -> Outcome {
    let mut record = container.watch();
    let death = async {
        shim_exited(container).await;
        // A shim that exits on purpose has reported the exit of the container before.
        tokio::time::sleep(PAUSE).await;
    };
    let ended = async {
        let _ = record.wait_for(|record| record.phase == ContainerPhase::Exited).await;
    };
    tokio::select! {
        biased;
        outcome = ask(parts, container) => outcome,
        () = death => Outcome::Died("its process exited".to_owned()),
        () = ended => Outcome::Over,
    }
}

/// Waits for the exit of the shim's process, if that is known. A process that it started may keep its socket open, so that
/// the connection does not show it.
async fn shim_exited(container: &Container) {
    let Some(shim) = container.record().shim.clone().filter(|shim| shim.pid != 0) else {
        return std::future::pending().await;
    };
    match offload::in_place(|| process::try_find(shim.pid, shim.start_time)) {
        Ok(Some(pidfd)) if process::ended(&pidfd).await.is_ok() => {}
        Ok(None) => {}
        // Without descriptors, only the connection shows it.
        _ => std::future::pending().await,
    }
}

/// Whether the process of the shim is known, and running.
fn is_running(container: &Container) -> bool {
    let Some(shim) = container.record().shim.clone().filter(|shim| shim.pid != 0) else { return false };
    offload::in_place(|| process::find(shim.pid, shim.start_time)).is_some_and(|pidfd| !process::has_ended(&pidfd))
}

async fn ask(parts: &Weak<Parts>, container: &Container) -> Outcome {
    let mut tries = 0;
    // A shim whose process runs is given the time of a request.
    let timeout = container.metadata.shim.as_ref().map_or(0, |shim| shim.timeout);
    let (began, patience) = (Instant::now(), Duration::from_secs(timeout.into()));
    loop {
        if parts.strong_count() == 0 {
            return Outcome::Over;
        }
        let failure = match connect(container).await {
            Ok(task) => match task.wait("").await {
                Ok(exit) => return Outcome::Exited(exit),
                // It does not know the container anymore, or does not implement `Wait` in this state.
                Err(error) if error.kind != ErrorKind::Gone => match task.state("").await.map(|state| state.status) {
                    Ok(Status::Stopped(exit)) => return Outcome::Exited(exit),
                    _ => return Outcome::Died(error.to_string()),
                },
                Err(error) => error.to_string(),
            },
            Err(error) => error.message,
        };
        tries += 1;
        let is_busy = began.elapsed() < patience && is_running(container);
        if tries >= TRIES && !is_busy {
            return Outcome::Died(failure);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
