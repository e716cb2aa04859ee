//! `CreateContainer`: [`Recorded`] → [`phases::Opened`] → [`phases::Ready`] → [`phases::Cloned`] → created. Each phase
//! is consumed by the next; a failure rolls everything back.

mod adjust_draft;
mod check;
mod phases;
mod pid_namespace;
pub(crate) mod sandbox_container;
pub(crate) mod saved;

use std::sync::Arc;

use image::Image;
use tracing::{Instrument, debug_span};

use super::{prepare::image_volume, remove, vm};
use crate::{
    ContainerConfig, ContainerId, Error, ErrorKind,
    namespaces::has_lost_init,
    parts::Parts,
    plugins,
    store::{ContainerName, ContainerPhase, Sandbox},
};
use check::{check_against_pod, check_against_runtime};
use phases::{CreateFailure, Recorded};
use saved::Origin;

/// Creates a container, or returns the existing one that has this name.
///
/// | existing container of this name and attempt | equal configuration | different configuration |
/// |---|---|---|
/// | is being created | waits for it and returns its id | waits for it, then as below |
/// | not started yet | returns its id | replaces it: nothing of it has run |
/// | running | returns its id | `AlreadyExists` |
/// | exited | creates a new one and keeps the old one | the same |
pub(crate) async fn create(parts: &Arc<Parts>, sandbox: &str, config: ContainerConfig) -> Result<ContainerId, Error> {
    if config.is_sandbox_container() {
        return Err(Error::invalid("config.name: it is empty; name the container"));
    }
    let sandbox = parts.registry.sandbox(sandbox)?;
    let operation = format!("create container {} in pod {}", config.name, sandbox.id());
    let created = find_or_create(parts, &sandbox, Arc::new(config)).await;
    created.map_err(|e| image_volume::reason_first(e.during(operation)))
}

async fn find_or_create(
    parts: &Arc<Parts>,
    sandbox: &Arc<Sandbox>,
    config: Arc<ContainerConfig>,
) -> Result<ContainerId, Error> {
    let names = &parts.registry.container_names;
    let name: ContainerName = (sandbox.id().clone(), config.name.clone(), config.attempt);
    loop {
        let id = match names.owner(&name) {
            Some(id) => id,
            None => {
                let (parts, sandbox, config) = (Arc::clone(parts), Arc::clone(sandbox), Arc::clone(&config));
                let (flights, task_name) = (parts.flights.create_container.clone(), name.clone());
                let work = || async move { create_named(&parts, &sandbox, task_name, config).await };
                flights.run(name.clone(), work).await?
            }
        };
        match existing(parts, &id, &config) {
            Existing::Equal => return Ok(id),
            Existing::Exited => names.release(&name, &id),
            Existing::NotStarted => {
                remove::remove(parts, &id).await?;
                names.release(&name, &id);
            }
            Existing::Running => {
                let attempt = config.attempt;
                let message = format!(
                    "attempt {attempt} exists as container {id}, which is running with another configuration; stop it, \
                     or request another attempt"
                );
                return Err(Error::new(ErrorKind::AlreadyExists, message));
            }
        }
    }
}

/// The container that already has the requested name.
enum Existing {
    /// It has the requested configuration.
    Equal,
    /// It exited, or it was removed.
    Exited,
    /// It has another configuration, and its program was not started.
    NotStarted,
    /// It has another configuration, and it is running.
    Running,
}

fn existing(parts: &Parts, id: &ContainerId, config: &ContainerConfig) -> Existing {
    let Ok(container) = parts.registry.container(id) else { return Existing::Exited };
    let json = |config: &ContainerConfig| serde_json::to_value(config).ok();
    match container.record().phase {
        ContainerPhase::Exited => Existing::Exited,
        _ if json(container.config()) == json(config) => Existing::Equal,
        ContainerPhase::Creating | ContainerPhase::Created => Existing::NotStarted,
        ContainerPhase::Starting | ContainerPhase::Running => Existing::Running,
    }
}

/// Creates the container that gets a name; nothing else creates one of that name in the meantime.
async fn create_named(
    parts: &Arc<Parts>,
    sandbox: &Arc<Sandbox>,
    name: ContainerName,
    config: Arc<ContainerConfig>,
) -> Result<ContainerId, Error> {
    if let Some(id) = parts.registry.container_names.owner(&name) {
        // Another request completed since this one looked.
        return Ok(id);
    }
    let id = create_or_retry(parts, sandbox, config).instrument(debug_span!("create_container")).await?;
    parts.registry.container_names.assign(name, id.clone());
    Ok(id)
}

/// Creates the container. Tries again once if the init process of the pod's PID namespace died in the meantime.
async fn create_or_retry(
    parts: &Arc<Parts>,
    sandbox: &Arc<Sandbox>,
    config: Arc<ContainerConfig>,
) -> Result<ContainerId, Error> {
    // Before anything is locked: an absent plugin is waited for.
    let required = plugins::require(parts, sandbox.config(), &config.name).await?;
    if let Some(facts) = parts.node.handlers.facts(&sandbox.config().runtime_handler).await? {
        check_against_runtime(&config, &facts)?;
    }
    let _creation = parts.creation_lock.read().await;
    let _gate = sandbox.gate.read().await;
    check_against_pod(&config.security, sandbox.config())?;
    if !sandbox.is_ready() {
        return Err(Error::state(format!("the pod is not ready: {}", sandbox.record().stage)));
    }
    vm::check_size(parts, sandbox, &config.resources)?;
    let image = parts.node.images.find(&config.image)?;
    let image = image.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("image {:?} is not present on this node; pull it first", config.image))
    })?;
    let mut created = try_create(parts, sandbox, &image, Arc::clone(&config), &required).await;
    // No process can be cloned into a PID namespace whose init process exits, and only the failed clone shows that it
    // does.
    if let Err(CreateFailure { pid_namespace: Some(namespace), .. }) = created
        && has_lost_init(parts, sandbox, namespace).await
    {
        created = try_create(parts, sandbox, &image, config, &required).await;
    }
    if let Ok(container) = created.as_ref().map_err(drop).and_then(|id| parts.registry.container(id).map_err(drop)) {
        parts.add_container_name(sandbox, &container);
    }
    created.map_err(|CreateFailure { error, container, .. }| {
        container.iter().for_each(|container| parts.observe.failures.add_container(container, &error));
        error
    })
}

/// Creates a container, or rolls everything back.
async fn try_create(
    parts: &Arc<Parts>,
    sandbox: &Arc<Sandbox>,
    image: &Image,
    config: Arc<ContainerConfig>,
    required: &[String],
) -> Result<ContainerId, CreateFailure> {
    create_from(parts, sandbox, Origin { image, saved: None }, config, required).await
}

/// Creates a container from this, or rolls everything back.
async fn create_from(
    parts: &Arc<Parts>,
    sandbox: &Arc<Sandbox>,
    origin: Origin<'_>,
    config: Arc<ContainerConfig>,
    required: &[String],
) -> Result<ContainerId, CreateFailure> {
    let recorded = Recorded::new(parts, sandbox, origin, config, required)?;
    let ready = recorded.open().await?.prepare().await?;
    ready.clone_process().await?.publish().await
}
