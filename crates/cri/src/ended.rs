//! `pinion run -d --rm`: nobody waits for the container, so the daemon removes it once it ended.
//!
//! The wish is an annotation, part of the records: it holds over a restart of the daemon. On a pod it says that the pod was
//! made for its one container and goes with it. The order (log, container, pod, folder of logs) leaves at every moment a
//! record from which [`recover`] finds the rest.

use std::{collections::BTreeMap, fs, io};

use pod::{ContainerStatus, Engine, SandboxStatus};

use crate::answer::Shared;

/// On a container: remove it when it ended. On a pod: remove it when its container is removed.
pub const REMOVE_ENDED: &str = "io.pinion.remove-ended";

fn is_wanted(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(REMOVE_ENDED).is_some_and(|value| value == "true")
}

/// Takes up what an earlier daemon was asked for. Before requests are served, so that no pod is just being filled.
pub(crate) fn recover(state: &Shared) {
    let containers = state.engine.containers();
    for pod in state.engine.sandboxes().into_iter().filter(|pod| is_wanted(&pod.config.annotations)) {
        if !containers.iter().any(|container| container.sandbox == pod.id) {
            let state = state.clone();
            tokio::spawn(async move { tell(&pod.id, remove_pod(&state.engine, &pod).await) });
        }
    }
    containers.into_iter().for_each(|container| watch(state, container));
}

/// Sees to it that a container that was started goes when it ended, if that is wanted.
pub(crate) fn started(state: &Shared, id: &str) {
    if let Ok(container) = state.engine.container(id) {
        watch(state, container);
    }
}

fn watch(state: &Shared, container: ContainerStatus) {
    if is_wanted(&container.config.annotations) {
        let state = state.clone();
        tokio::spawn(async move {
            // A container that somebody else removed needs nothing more.
            if state.engine.wait(&container.id).await.is_ok() {
                tell(&container.id, remove(&state.engine, &container).await);
            }
        });
    }
}

async fn remove(engine: &Engine, container: &ContainerStatus) -> Result<(), pod::Error> {
    let pod = engine.sandbox(&container.sandbox).ok().filter(|pod| is_wanted(&pod.config.annotations));
    if let (Some(_), Some(log)) = (&pod, container.log_path.clone()) {
        tell(&container.id, on_its_disk(move || fs::remove_file(log)).await);
    }
    engine.remove_container(&container.id).await?;
    match pod {
        Some(pod) => remove_pod(engine, &pod).await,
        None => Ok(()),
    }
}

async fn remove_pod(engine: &Engine, pod: &SandboxStatus) -> Result<(), pod::Error> {
    engine.stop_sandbox(&pod.id).await?;
    engine.remove_sandbox(&pod.id).await?;
    if let Some(folder) = pod.config.log_directory.clone() {
        tell(&pod.id, on_its_disk(move || fs::remove_dir(folder)).await);
    }
    Ok(())
}

/// By a thread that the file system of the logs may hang.
async fn on_its_disk(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    let done = tokio::task::spawn_blocking(work).await;
    unless_gone(done.unwrap_or_else(|panic| Err(io::Error::other(panic))))
}

fn unless_gone(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// There is no client to tell.
fn tell(id: &str, outcome: Result<(), impl std::fmt::Display>) {
    if let Err(error) = outcome {
        tracing::warn!("remove {id}, which ended: {error}");
    }
}
