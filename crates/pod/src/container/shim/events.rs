//! Events of shims. Only an OOM kill means something: an exit counts when the shim answers `Wait`.

use std::{
    path::Path,
    sync::{Weak, atomic::Ordering},
};

use ::shim::events::{Event, Topic, serve};
use tokio::sync::mpsc;

use super::{EVENTS, namespace};
use crate::{Error, error::failed, namespaces::shim_mounts, parts::Parts};

/// Creates the socket for events.
pub(crate) fn listen(state_dir: &Path) -> Result<mpsc::Receiver<Event>, Error> {
    let path = state_dir.join(EVENTS);
    offload::in_place(|| serve(&path)).map_err(failed(format_args!("listen on {}", path.display())))
}

/// Handles events until the engine is dropped.
pub(crate) async fn handle(parts: Weak<Parts>, mut events: mpsc::Receiver<Event>) {
    while let Some(event) = events.recv().await {
        let Some(parts) = parts.upgrade() else { return };
        if event.topic == Topic::OutOfMemory {
            out_of_memory(&parts, &event).await;
        }
    }
}

/// Records an OOM kill, if a process in the mount namespace of the pod's shims reports it.
async fn out_of_memory(parts: &Parts, event: &Event) {
    let Ok(container) = parts.registry.container(event.container.as_str()) else { return };
    if container.metadata.shim.is_none() || container.id().as_str() != event.container {
        return;
    }
    let Ok(Some(namespace)) = namespace::find(parts, &container.metadata.sandbox).await else { return };
    if offload::in_place(|| shim_mounts::contains(&namespace, event.sender)) {
        container.shim.out_of_memory.store(true, Ordering::Release);
    }
}
