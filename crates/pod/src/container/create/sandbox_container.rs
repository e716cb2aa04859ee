//! The sandbox container of a pod: shims of gVisor and Kata start the sandbox with it, and the other containers of the
//! pod in that. It has a program that only waits, and no image, log, or plugin. No list contains it.

use std::{collections::BTreeMap, sync::Arc};

use image::{Image, ImageConfig};

use super::try_create;
use crate::{
    ContainerConfig, ContainerId, Error, Security, UserChoice,
    container::{remove::remove, start},
    operation::with_undo,
    parts::Parts,
    store::{Container, ContainerPhase, Sandbox},
};

/// Returns the sandbox container of a pod, if it has one.
pub(crate) fn find(parts: &Parts, sandbox: &Sandbox) -> Option<Arc<Container>> {
    let mut containers = parts.registry.containers_of(sandbox.id()).into_iter();
    containers.find(|container| container.is_sandbox_container())
}

/// Creates and starts the sandbox container of a pod, unless it is running. Returns its id if it was started.
///
/// # Errors
/// `FailedPrecondition` if it has exited: the sandbox is gone, with all containers in it.
pub(crate) async fn start(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> Result<Option<ContainerId>, Error> {
    let _creation = sandbox.sandbox_container.lock().await;
    let found = find(parts, sandbox);
    let id = match found.as_ref().map(|container| container.record().phase) {
        Some(ContainerPhase::Running) => return Ok(None),
        Some(ContainerPhase::Exited) => {
            return Err(Error::state(format!(
                "the sandbox of pod {} has ended; remove the pod, and create it again",
                sandbox.id()
            )));
        }
        _ => match found {
            Some(container) => container.id().clone(),
            None => create(parts, sandbox).await.map_err(with_context)?,
        },
    };
    match start::start(parts, id.as_str()).await {
        Ok(()) => Ok(Some(id)),
        Err(error) => {
            // The next request tries again.
            let removed = remove(parts, &id).await;
            Err(with_context(with_undo(error, removed)))
        }
    }
}

fn with_context(error: Error) -> Error {
    error.during("start the sandbox container of the pod")
}

async fn create(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> Result<ContainerId, Error> {
    let _creation = parts.creation_lock.read().await;
    let _gate = sandbox.gate.read().await;
    if !sandbox.is_ready() {
        return Err(Error::state(format!("the pod is not ready: {}", sandbox.record().stage)));
    }
    let created = try_create(parts, sandbox, &image(), Arc::new(config(sandbox)), &[]).await;
    created.map_err(|failure| failure.error)
}

/// Creates a process of the virtual machine of a pod that is being created. The caller holds the gate of the pod.
pub(crate) async fn create_with(
    parts: &Arc<Parts>,
    sandbox: &Arc<Sandbox>,
    config: ContainerConfig,
) -> Result<ContainerId, Error> {
    let created = try_create(parts, sandbox, &image(), Arc::new(config), &[]).await;
    created.map_err(|failure| failure.error)
}

/// Returns what stands for its image.
fn image() -> Image {
    Image {
        id: String::new(),
        repo_tags: Vec::new(),
        repo_digests: Vec::new(),
        size: 0,
        config: Arc::new(ImageConfig::default()),
        annotations: BTreeMap::new(),
        pinned: false,
        raw_config: Arc::default(),
    }
}

fn config(sandbox: &Sandbox) -> ContainerConfig {
    let minimal = ContainerConfig::minimal(String::new());
    ContainerConfig {
        command: vec![pod_init::PATH.to_owned()],
        security: Security {
            user: UserChoice::Uid { uid: 0, gid: None },
            no_new_privileges: true,
            drop_capabilities: vec!["ALL".to_owned()],
            user_namespace: sandbox.config().user_namespace.clone(),
            ..minimal.security
        },
        ..minimal
    }
}
