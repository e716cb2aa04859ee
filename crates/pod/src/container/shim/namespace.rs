//! The mount namespace of a pod's shims, and the processes in it.

use std::{sync::Arc, time::Duration};

use rustix::fd::OwnedFd;

use crate::{
    Error, SandboxId,
    error::failed,
    namespaces::shim_mounts,
    operation::blocking,
    parts::Parts,
    store::{Container, ContainerPhase, Sandbox},
};

/// How long killed processes may take to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often killed processes are looked for again.
const EXIT_POLL: Duration = Duration::from_millis(20);

/// Returns the namespace of a pod; `None` if it does not exist. After the death of both daemon and monitor it is found by
/// the processes in it.
pub(super) async fn find(parts: &Parts, sandbox: &SandboxId) -> Result<Option<OwnedFd>, Error> {
    let key = shim_mounts::key(sandbox);
    let held = parts.monitor.custody().key_file(&key, 0);
    if let Some(namespace) = held.map_err(failed("duplicate the mount namespace of the pod's shims"))? {
        return Ok(Some(namespace));
    }
    let state_dir = parts.node.config.state_dir.clone();
    let mut found = blocking(move || Ok(shim_mounts::find_all(&state_dir))).await?;
    let Some(namespace) = found.remove(sandbox.as_str()) else { return Ok(None) };
    keep(parts, sandbox, &namespace).await?;
    Ok(Some(namespace))
}

/// Returns the namespace of the pod of a new container, and creates it if it does not exist. The caller holds the lock
/// `shims` of the pod.
pub(super) async fn find_or_create(parts: &Parts, container: &Container) -> Result<OwnedFd, Error> {
    let sandbox = &container.metadata.sandbox;
    // Nothing is looked for in a pod without other containers: it could only be a forgery.
    let is_first = shim_containers(parts, sandbox).all(|other| other.id() == container.id());
    let is_held = parts.monitor.custody().key_file_count(&shim_mounts::key(sandbox)) > 0;
    if (is_held || !is_first)
        && let Some(namespace) = find(parts, sandbox).await?
    {
        return Ok(namespace);
    }
    let (state_dir, id) = (parts.node.config.state_dir.clone(), sandbox.clone());
    let namespace = blocking(move || shim_mounts::create(&state_dir, &id)).await?;
    keep(parts, sandbox, &namespace).await?;
    Ok(namespace)
}

async fn keep(parts: &Parts, sandbox: &SandboxId, namespace: &OwnedFd) -> Result<(), Error> {
    let namespace = namespace.try_clone().map_err(failed("duplicate a mount namespace"))?;
    parts.monitor.keep(shim_mounts::key(sandbox), vec![namespace]).await
}

/// Kills all processes in the namespace, and waits until they are gone.
pub(super) async fn kill_all(namespace: OwnedFd) -> Result<(), Error> {
    let namespace = Arc::new(namespace);
    let until = tokio::time::Instant::now() + EXIT_TIMEOUT;
    loop {
        let task_namespace = Arc::clone(&namespace);
        if blocking(move || shim_mounts::kill_members(&task_namespace)).await? == 0 {
            return Ok(());
        }
        if tokio::time::Instant::now() >= until {
            return Err(Error::unavailable(format!(
                "killed shims have not exited for {} s; they may hang in the kernel",
                EXIT_TIMEOUT.as_secs()
            )));
        }
        tokio::time::sleep(EXIT_POLL).await;
    }
}

/// Whether a container of the pod, other than this one, may use a shim.
pub(super) fn has_other_users(parts: &Parts, sandbox: &SandboxId, container: &str) -> bool {
    let mut others = shim_containers(parts, sandbox).filter(|other| other.id().as_str() != container);
    others.any(|other| other.record().phase != ContainerPhase::Exited)
}

/// Returns the containers of a pod that have a shim.
fn shim_containers(parts: &Parts, sandbox: &SandboxId) -> impl Iterator<Item = Arc<Container>> {
    parts.registry.containers_of(sandbox).into_iter().filter(|container| container.metadata.shim.is_some())
}

/// Ends all shims of a pod, whose containers are stopped, and their mount namespace with them.
pub(crate) async fn kill_pod(parts: &Parts, sandbox: &Sandbox) -> Result<(), Error> {
    let is_used = shim_containers(parts, sandbox.id()).next().is_some();
    let is_held = parts.monitor.custody().key_file_count(&shim_mounts::key(sandbox.id())) > 0;
    if !is_used && !is_held {
        return Ok(());
    }
    let _shims = sandbox.shims.lock().await;
    if let Some(namespace) = find(parts, sandbox.id()).await? {
        kill_all(namespace).await?;
    }
    parts.monitor.release(&shim_mounts::key(sandbox.id())).await
}

/// Ends the shims of pods that are not on record. A failure for one does not stop the others; the last one is returned.
pub(crate) async fn kill_unowned(parts: &Parts) -> Result<(), Error> {
    let state_dir = parts.node.config.state_dir.clone();
    let mut result = Ok(());
    for (id, namespace) in blocking(move || Ok(shim_mounts::find_all(&state_dir))).await? {
        // An owner is on record before the namespace exists, and ids are not reused.
        if parts.registry.sandbox(id.as_str()).is_err() {
            tracing::warn!("shims of pod {id}, which is not on record, are running: ending them");
            result = kill_all(namespace).await.and(result);
        }
    }
    result
}
