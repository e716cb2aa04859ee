//! What the daemon does once a container of `pinion run` ended: with `--rm` it removes it, else it stops the pod that
//! was made for it alone, so that its address and host ports are free again. The command line may be gone by then.
//!
//! The request is an annotation ([`pod::annotation`]), part of the records: it holds over a restart of the daemon. The
//! order of a removal (log, container, pod, directory of logs) leaves at every moment a record from which [`recover`]
//! finds the rest.

use std::{fs, io, path::Path, time::Duration};

use pod::{
    ContainerState, ContainerStatus, Engine, SandboxStatus, Users,
    annotation::{RELEASE_ENDED, REMOVE_ENDED, is_set},
};

use crate::answer::Shared;

/// Continues what an earlier daemon was requested to do. Before requests are served, so that no pod is just being
/// filled.
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
                until_done(&pod.id, work).await;
            });
        }
    }
    containers.into_iter().for_each(|container| watch(state, container));
}

/// Watches a container that was started, if anything is to be done when it ended.
pub(crate) fn started(state: &Shared, id: &str) {
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
        // A container that somebody else removed needs nothing more.
        if state.engine.wait(&container.id).await.is_err() {
            return;
        }
        if remove {
            // Removing it cuts off what attached clients have not read yet.
            state.attached.none(&container.id).await;
            let work = || {
                let (engine, container) = (state.engine.clone(), container.clone());
                async move { self::remove(&engine, &container).await }
            };
            until_done(&container.id, work).await;
        } else if state.engine.sandbox(&container.sandbox).is_ok_and(|pod| !is_kubelets(&pod)) {
            let work = || {
                let (engine, container) = (state.engine.clone(), container.clone());
                async move { release(&engine, &container).await }
            };
            until_done(&container.id, work).await;
        }
    });
}

/// Repeats what fails: nobody else does what no client waits for.
async fn until_done<F: Future<Output = Result<(), pod::Error>>>(id: &str, mut work: impl FnMut() -> F) {
    const PAUSE: Duration = Duration::from_secs(1);
    const PAUSE_MAX: Duration = Duration::from_secs(60);
    let mut pause = PAUSE;
    while let Err(error) = work().await {
        report(id, Err::<(), _>(error));
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// A pod that the command line made, and that goes with its last container.
fn is_removed_when_ended(pod: &SandboxStatus) -> bool {
    is_set(&pod.config.annotations, REMOVE_ENDED) && !is_kubelets(pod)
}

/// Whether kubelet made a pod: its annotations are whatever the author of the pod wrote, this label is kubelet's own.
fn is_kubelets(pod: &SandboxStatus) -> bool {
    pod.config.labels.contains_key("io.kubernetes.pod.uid")
}

/// Stops the pod of a container that ended, once others that were put into it have ended, too.
async fn release(engine: &Engine, container: &ContainerStatus) -> Result<(), pod::Error> {
    const PAUSE: Duration = Duration::from_millis(100);
    while !engine.stop_unused_sandbox(&container.sandbox, Users::Living).await? {
        let is_user =
            |other: &ContainerStatus| other.sandbox == container.sandbox && other.state != ContainerState::Exited;
        match engine.containers().into_iter().find(is_user) {
            // Whether it ended or was removed is looked at again.
            Some(other) => drop(engine.wait(&other.id).await),
            None => tokio::time::sleep(PAUSE).await,
        }
    }
    Ok(())
}

async fn remove(engine: &Engine, container: &ContainerStatus) -> Result<(), pod::Error> {
    let pod = engine.sandbox(&container.sandbox).ok().filter(is_removed_when_ended);
    if let (Some(_), Some(log)) = (&pod, container.log_path.clone()) {
        report(&container.id, on_its_disk(move || fs::remove_file(log)).await);
    }
    engine.remove_container(&container.id).await?;
    match pod {
        Some(pod) => remove_pod(engine, &pod).await,
        None => Ok(()),
    }
}

/// Not while others have containers in it.
async fn remove_pod(engine: &Engine, pod: &SandboxStatus) -> Result<(), pod::Error> {
    if !engine.stop_unused_sandbox(&pod.id, Users::All).await? {
        return Ok(());
    }
    engine.remove_sandbox(&pod.id).await?;
    if let Some(directory) = pod.config.log_directory.clone() {
        report(&pod.id, on_its_disk(move || remove_logs(&directory)).await);
    }
    Ok(())
}

/// Removes a pod's directory of logs with the logs in it, and no other file: no path in a record is an order to empty
/// any directory of the machine. A file that is gone already is not a failure: daemon and command line may both remove
/// it.
///
/// # Errors
/// The kernel's, of the first file that cannot be removed.
pub fn remove_logs(directory: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            unless_gone(fs::remove_file(&path))?;
        }
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        outcome => unless_gone(outcome),
    }
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

/// Logs a failure: no client waits for this.
fn report(id: &str, outcome: Result<(), impl std::fmt::Display>) {
    if let Err(error) = outcome {
        tracing::warn!(id, %error, "a container ended, and what it used cannot be given back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_logs_are_removed_and_what_is_gone_is_not_a_failure() {
        let root = tempfile::tempdir().expect("a directory");
        let logs = root.path().join("logs");
        fs::create_dir(&logs).expect("mkdir");
        fs::write(logs.join("a.log"), "").expect("written");
        fs::write(logs.join("note"), "").expect("written");
        remove_logs(&logs).expect("the log goes");
        assert!(!logs.join("a.log").exists() && logs.join("note").exists());
        fs::remove_file(logs.join("note")).expect("removed");
        remove_logs(&logs).expect("removed");
        assert!(!logs.exists());
        remove_logs(&logs).expect("gone already");
    }
}
