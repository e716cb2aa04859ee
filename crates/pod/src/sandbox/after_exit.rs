//! Cleans up after a container of `pinion run` exited. With `--rm` the container is removed; otherwise the pod that was
//! created only for it is stopped, so that its address and host ports are free again. The command line may have exited
//! by then.
//!
//! The request is an annotation ([`crate::annotation`]) and part of the records, so it survives a restart of the
//! daemon. The order of a removal (log, container, pod, log directory) leaves a record at every moment from which
//! [`resume`] finds the rest.

use std::{fs, io, sync::Arc, time::Duration};

use super::{
    logs::{ignore_missing, remove_logs},
    remove::remove as remove_sandbox,
    stop::{PodUsers, stop, stop_unused},
};
use crate::{
    ContainerId, ContainerState, ContainerStatus, Error, SandboxStatus, Selects,
    annotation::{RELEASE_ENDED, REMOVE_ENDED, is_set},
    container::{exit, remove::remove as remove_container},
    parts::Parts,
};

/// Resumes the cleanup that an earlier daemon was requested to do. Called before requests are served, so that no client
/// is creating containers in a pod.
pub(crate) fn resume(parts: &Arc<Parts>) {
    for sandbox in parts.registry.sandboxes() {
        let pod = sandbox.status();
        if is_removed_when_ended(&pod) && parts.registry.listed_containers_of(&pod.id).is_empty() {
            let parts = Arc::clone(parts);
            tokio::spawn(async move { retry_until_done(pod.id.as_str(), || remove_pod(&parts, &pod)).await });
        }
    }
    parts.registry.containers().into_iter().for_each(|container| watch(parts, container.status()));
}

/// Watches a started container if a cleanup is requested for its exit.
pub(crate) fn container_started(parts: &Arc<Parts>, id: &(impl Selects<ContainerId> + ?Sized)) {
    if let Ok(container) = parts.registry.container(id) {
        watch(parts, container.status());
    }
}

fn watch(parts: &Arc<Parts>, container: ContainerStatus) {
    if container.config.is_sandbox_container() {
        return stop_with(parts, container);
    }
    let remove = is_set(&container.config.annotations, REMOVE_ENDED);
    if !remove && !is_set(&container.config.annotations, RELEASE_ENDED) {
        return;
    }
    let (clients, exited) = (parts.attached_clients.clone(), exit::wait(parts, &container.id));
    // Not kept until the exit, which may never come.
    let parts = Arc::downgrade(parts);
    tokio::spawn(async move {
        // If another client removed the container, or the engine was dropped, there is nothing left to do.
        if exited.await.is_err() {
            return;
        }
        if remove {
            // Removing the container discards the output that attached clients have not read yet.
            clients.wait_for_none(&container.id).await;
        }
        let Some(parts) = parts.upgrade() else { return };
        if remove {
            retry_until_done(container.id.as_str(), || self::remove(&parts, &container)).await;
        } else if pod_of(&parts, &container).is_some_and(|pod| !is_from_kubelet(&pod)) {
            retry_until_done(container.id.as_str(), || release(&parts, &container)).await;
        }
    });
}

/// Stops a pod when its sandbox container has exited: nothing runs in it, and nothing can be created in it.
fn stop_with(parts: &Arc<Parts>, container: ContainerStatus) {
    let exited = exit::wait(parts, &container.id);
    let parts = Arc::downgrade(parts);
    tokio::spawn(async move {
        if exited.await.is_ok()
            && let Some(parts) = parts.upgrade()
        {
            retry_until_done(container.sandbox.as_str(), || stop(&parts, &container.sandbox)).await;
        }
    });
}

fn pod_of(parts: &Parts, container: &ContainerStatus) -> Option<SandboxStatus> {
    parts.registry.sandbox(&container.sandbox).ok().map(|sandbox| sandbox.status())
}

/// Retries a failed cleanup, because no client waits for it and would retry it.
async fn retry_until_done<F: Future<Output = Result<(), Error>>>(id: &str, mut work: impl FnMut() -> F) {
    const PAUSE: Duration = Duration::from_secs(1);
    const PAUSE_MAX: Duration = Duration::from_secs(60);
    let mut pause = PAUSE;
    while let Err(error) = work().await {
        report(id, Err::<(), _>(error));
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// Reports whether the command line created a pod that is to be removed with its last container.
fn is_removed_when_ended(pod: &SandboxStatus) -> bool {
    is_set(&pod.config.annotations, REMOVE_ENDED) && !is_from_kubelet(pod)
}

/// Reports whether kubelet created a pod. Its annotations come from the author of the pod; this label is set by kubelet
/// itself.
fn is_from_kubelet(pod: &SandboxStatus) -> bool {
    pod.config.labels.contains_key("io.kubernetes.pod.uid")
}

/// Stops the pod of a container that exited, after other containers in the pod have exited too.
async fn release(parts: &Arc<Parts>, container: &ContainerStatus) -> Result<(), Error> {
    const PAUSE: Duration = Duration::from_millis(100);
    while !stop_unused(parts, &container.sandbox, PodUsers::NotExited).await? {
        let mut others = parts.registry.listed_containers_of(&container.sandbox).into_iter();
        // Not kept while it is waited for: its removal must end the wait.
        let other = others.find(|other| other.state() != ContainerState::Exited).map(|other| other.id().clone());
        drop(others);
        match other {
            // The loop checks again whether it exited or was removed.
            Some(id) => drop(exit::wait(parts, &id).await),
            None => tokio::time::sleep(PAUSE).await,
        }
    }
    Ok(())
}

async fn remove(parts: &Arc<Parts>, container: &ContainerStatus) -> Result<(), Error> {
    let pod = pod_of(parts, container).filter(is_removed_when_ended);
    if let (Some(_), Some(log)) = (&pod, container.log_path.clone()) {
        report(container.id.as_str(), on_blocking_thread(move || fs::remove_file(log)).await);
    }
    remove_container(parts, &container.id).await?;
    match pod {
        Some(pod) => remove_pod(parts, &pod).await,
        None => Ok(()),
    }
}

/// Removes a pod unless other clients have containers in it.
async fn remove_pod(parts: &Arc<Parts>, pod: &SandboxStatus) -> Result<(), Error> {
    if !stop_unused(parts, &pod.id, PodUsers::All).await? {
        return Ok(());
    }
    remove_sandbox(parts, &pod.id).await?;
    if let Some(directory) = pod.config.log_directory.clone() {
        report(pod.id.as_str(), on_blocking_thread(move || remove_logs(&directory)).await);
    }
    Ok(())
}

/// Runs work on a blocking thread, because the file system of the logs may hang.
async fn on_blocking_thread(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    let outcome = offload::blocking(work).await;
    ignore_missing(outcome.unwrap_or_else(|panic| Err(io::Error::other(panic))))
}

/// Logs an error, because no client waits for the result.
fn report(id: &str, outcome: Result<(), impl std::fmt::Display>) {
    if let Err(error) = outcome {
        tracing::warn!(id, %error, "cleanup after the exit of a container failed");
    }
}
