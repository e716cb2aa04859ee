//! Waits for the exit of a container, as the agent in its guest reports it.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use agent_api::{Exit, ProcessId, Status};
use vm::guest::ErrorKind;

use super::{
    end::{died, exited},
    process::find_process,
    requests::connection_of,
};
use crate::{
    Error, VmProcess,
    container::external,
    parts::Parts,
    store::{Container, ContainerPhase},
};

/// Pause after a lost connection. It is doubled up to the second one.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// What became of a container.
enum Outcome {
    Exited(Exit),
    Died(String),
    /// Another task handles its end, or the engine was dropped.
    Over,
}

/// Waits for the exit in a task of its own, and handles it. Does nothing if such a task exists.
pub(crate) fn watch(parts: &Arc<Parts>, container: &Arc<Container>) {
    let sandbox = parts.registry.sandbox(&container.metadata.sandbox);
    if sandbox.is_ok_and(|sandbox| sandbox.is_restoring()) {
        // It is removed, or watched when the restore is complete.
        return;
    }
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
    let ended = async {
        let _ = record.wait_for(|record| record.phase == ContainerPhase::Exited).await;
    };
    tokio::select! {
        biased;
        outcome = ask(parts, container) => outcome,
        () = ended => Outcome::Over,
    }
}

/// Waits for the answer of the guest, over a new connection whenever one is lost, as long as the virtual machine runs.
async fn ask(parts: &Weak<Parts>, container: &Arc<Container>) -> Outcome {
    let id = ProcessId::container(container.guest_id().as_str());
    let mut pause = PAUSE;
    loop {
        let Some(strong) = parts.upgrade() else { return Outcome::Over };
        let failure = match connection_of(&strong, container).await {
            Ok(connection) => {
                if let Err(error) = settle(&strong, container, &connection.guest).await {
                    tracing::debug!(container = container.id().as_str(), "{error}");
                }
                drop(strong);
                match connection.guest.wait(&id).await {
                    Ok(exit) => return Outcome::Exited(exit),
                    Err(error) if error.kind == ErrorKind::NotFound => return Outcome::Died(error.to_string()),
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => error.message,
        };
        let Some(parts) = parts.upgrade() else { return Outcome::Over };
        if !is_running(&parts, container) {
            return Outcome::Died(failure);
        }
        drop(parts);
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// Whether the virtual machine monitor of the container's pod runs.
fn is_running(parts: &Parts, container: &Container) -> bool {
    let sandbox = &container.metadata.sandbox;
    match find_process(parts, sandbox, VmProcess::Hypervisor) {
        Some(hypervisor) => hypervisor.record().phase != ContainerPhase::Exited,
        // After a restart, it may not be loaded yet.
        None => parts.registry.sandbox(sandbox).is_ok_and(|sandbox| sandbox.is_ready()),
    }
}

/// Completes or reverts what the record says: an earlier daemon may have died in the middle of a start.
async fn settle(parts: &Arc<Parts>, container: &Arc<Container>, guest: &vm::guest::Guest) -> Result<(), Error> {
    // A request of this daemon records its outcome itself.
    let Ok(_busy) = container.busy.try_lock() else { return Ok(()) };
    let phase = container.record().phase;
    if !matches!(phase, ContainerPhase::Created | ContainerPhase::Starting) {
        return Ok(());
    }
    let guest_id = container.guest_id().as_str();
    if container.record().frozen {
        // It is running, and frozen until its start, which may have been interrupted before or after it was thawed.
        if phase == ContainerPhase::Created {
            return Ok(());
        }
        guest.freeze(guest_id, false).await.map_err(super::from_guest)?;
    }
    let state = guest.state(&ProcessId::container(guest_id)).await.map_err(super::from_guest)?;
    match state.status {
        Status::Running => external::settle(parts, container, true).await,
        Status::Created => external::settle(parts, container, false).await,
        Status::Exited => Ok(()),
    }
}
