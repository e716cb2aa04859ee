//! Cleans up after a container of `pinion run` exited. With `--rm` the container is removed; otherwise the pod that was
//! created only for it is stopped, so that its address and host ports are free again. The command line may have exited
//! by then.
//!
//! The request is an annotation ([`pod::annotation`]) and part of the records, so it survives a restart of the daemon.
//! The order of a removal (log, container, pod, log directory) leaves a record at every moment from which [`recover`]
//! finds the rest.

use std::{fs, io, path::Path, time::Duration};

use pod::{
    ContainerState, ContainerStatus, Engine, PodUsers, SandboxStatus,
    annotation::{RELEASE_ENDED, REMOVE_ENDED, is_set},
};

use crate::handler::Shared;

/// Resumes the cleanup that an earlier daemon was requested to do. Called before requests are served, so that no client
/// is creating containers in a pod.
pub(crate) fn recover(state: &Shared) {
    let containers = state.engine.containers();
    for pod in state.engine.sandboxes().into_iter().filter(is_removed_when_ended) {
        if !containers.iter().any(|container| container.sandbox == pod.id) {
            let state = state.clone();
            tokio::spawn(async move {
                let work = || {
                    let (engine, pod) = (state.engine.clone(), pod.clone());
                    async move { remove_pod(&engine, &pod).await }
                };
                retry_until_done(&pod.id, work).await;
            });
        }
    }
    containers.into_iter().for_each(|container| watch(state, container));
}

/// Watches a started container if a cleanup is requested for its exit.
pub(crate) fn container_started(state: &Shared, id: &str) {
    if let Ok(container) = state.engine.container(id) {
        watch(state, container);
    }
}

fn watch(state: &Shared, container: ContainerStatus) {
    let remove = is_set(&container.config.annotations, REMOVE_ENDED);
    if !remove && !is_set(&container.config.annotations, RELEASE_ENDED) {
        return;
    }
    let state = state.clone();
    tokio::spawn(async move {
        // If another client removed the container, there is nothing left to do.
        if state.engine.wait(&container.id).await.is_err() {
            return;
        }
        if remove {
            // Removing the container discards the output that attached clients have not read yet.
            state.attached_clients.wait_for_none(&container.id).await;
            let work = || {
                let (engine, container) = (state.engine.clone(), container.clone());
                async move { self::remove(&engine, &container).await }
            };
            retry_until_done(&container.id, work).await;
        } else if state.engine.sandbox(&container.sandbox).is_ok_and(|pod| !is_from_kubelet(&pod)) {
            let work = || {
                let (engine, container) = (state.engine.clone(), container.clone());
                async move { release(&engine, &container).await }
            };
            retry_until_done(&container.id, work).await;
        }
    });
}

/// Retries a failed cleanup, because no client waits for it and would retry it.
async fn retry_until_done<F: Future<Output = Result<(), pod::Error>>>(id: &str, mut work: impl FnMut() -> F) {
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
async fn release(engine: &Engine, container: &ContainerStatus) -> Result<(), pod::Error> {
    const PAUSE: Duration = Duration::from_millis(100);
    while !engine.stop_unused_sandbox(&container.sandbox, PodUsers::NotExited).await? {
        let is_user =
            |other: &ContainerStatus| other.sandbox == container.sandbox && other.state != ContainerState::Exited;
        match engine.containers().into_iter().find(is_user) {
            // The loop checks again whether it exited or was removed.
            Some(other) => drop(engine.wait(&other.id).await),
            None => tokio::time::sleep(PAUSE).await,
        }
    }
    Ok(())
}

async fn remove(engine: &Engine, container: &ContainerStatus) -> Result<(), pod::Error> {
    let pod = engine.sandbox(&container.sandbox).ok().filter(is_removed_when_ended);
    if let (Some(_), Some(log)) = (&pod, container.log_path.clone()) {
        report(&container.id, on_blocking_thread(move || fs::remove_file(log)).await);
    }
    engine.remove_container(&container.id).await?;
    match pod {
        Some(pod) => remove_pod(engine, &pod).await,
        None => Ok(()),
    }
}

/// Removes a pod unless other clients have containers in it.
async fn remove_pod(engine: &Engine, pod: &SandboxStatus) -> Result<(), pod::Error> {
    if !engine.stop_unused_sandbox(&pod.id, PodUsers::All).await? {
        return Ok(());
    }
    engine.remove_sandbox(&pod.id).await?;
    if let Some(directory) = pod.config.log_directory.clone() {
        report(&pod.id, on_blocking_thread(move || remove_logs(&directory)).await);
    }
    Ok(())
}

/// Removes a pod's log directory with the logs in it, and no other files: a path in a record must never cause the
/// removal of arbitrary directories. Missing files are not an error, because the daemon and the command line may both
/// remove them.
///
/// # Errors
/// The error of the first file that cannot be removed.
pub fn remove_logs(directory: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            ignore_missing(fs::remove_file(&path))?;
        }
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        outcome => ignore_missing(outcome),
    }
}

/// Runs work on a blocking thread, because the file system of the logs may hang.
async fn on_blocking_thread(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    let outcome = offload::blocking(work).await;
    ignore_missing(outcome.unwrap_or_else(|panic| Err(io::Error::other(panic))))
}

fn ignore_missing(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// Logs an error, because no client waits for the result.
fn report(id: &str, outcome: Result<(), impl std::fmt::Display>) {
    if let Err(error) = outcome {
        tracing::warn!(id, %error, "cleanup after the exit of a container failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_logs_are_removed_and_missing_files_are_not_an_error() {
        let root = tempfile::tempdir().expect("a directory");
        let logs = root.path().join("logs");
        fs::create_dir(&logs).expect("mkdir");
        fs::write(logs.join("a.log"), "").expect("write");
        fs::write(logs.join("note"), "").expect("write");
        remove_logs(&logs).expect("remove logs");
        assert!(!logs.join("a.log").exists() && logs.join("note").exists());
        fs::remove_file(logs.join("note")).expect("remove");
        remove_logs(&logs).expect("remove logs");
        assert!(!logs.exists());
        remove_logs(&logs).expect("already removed");
    }
}
