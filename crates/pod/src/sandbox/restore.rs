//! `RestorePod`: creates a pod from a checkpoint. Its containers are created, and have not run since they were saved: the guest
//! keeps them frozen until they are started.
//!
//! ```text
//! read the description, compare it with the request ─▶ Reserved ─▶ Networked ─▶ file server ─▶ containers: layer, mounts, output
//!   ─▶ QEMU with the same devices ─▶ load the state ─▶ run: agent, time, network ─▶ limits ─▶ ready
//! ```
//! The description and the layers are not trusted, but the state is: QEMU parses it with all that a guest can do afterwards. Until
//! the pod is ready, its record shows that it is being restored, and the next daemon removes it with its containers.

mod compare;

use std::{
    fs::File,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use image::Image;
use tokio::sync::oneshot;

use super::{
    after_exit,
    check_handler::check_handler,
    checkpoint::abort_reason,
    remove::remove,
    run::{Networked, Reserved, ready, with_cgroup_parent},
    saved_pod::{Description, STATE, Source, layer},
    vm::RestoredMachine,
};
use crate::{
    ContainerConfig, ContainerId, Error, ErrorKind, SandboxConfig, SandboxId,
    container::{
        create::saved::{SavedContainer, create_saved},
        vm::{self, SavedPorts},
    },
    node::Handler,
    operation::{blocking, failpoint, with_undo},
    parts::Parts,
    plugins,
    store::{Container, Sandbox},
};

/// A request to restore a pod.
#[derive(Clone, Debug)]
pub struct PodRestore {
    /// Absolute path of the directory of the checkpoint.
    pub checkpoint: PathBuf,
    /// Configuration of the pod.
    pub config: SandboxConfig,
    /// Configurations of all its containers.
    pub containers: Vec<ContainerConfig>,
    /// Time limit.
    pub timeout: Duration,
}

/// A pod that was restored.
#[derive(Clone, Debug)]
pub struct RestoredPod {
    /// Its id.
    pub id: SandboxId,
    /// Names and ids of its containers.
    pub containers: Vec<(String, ContainerId)>,
}

/// Restores a pod. If the caller drops this, everything is undone.
pub(crate) async fn restore(parts: &Arc<Parts>, request: PodRestore) -> Result<RestoredPod, Error> {
    let name = request.config.name.clone();
    let operation = format!("restore pod {}/{}", name.namespace, name.name);
    let (caller, gone) = oneshot::channel::<()>();
    let restored = Arc::new(Mutex::new(None));
    let work = {
        let (parts, restored) = (Arc::clone(parts), Arc::clone(&restored));
        || {
            // On the heap and without its type, which is too deep for the compiler.
            async move {
                let pod = run(&parts, request, gone).await?;
                let id = pod.id.clone();
                *restored.lock().unwrap_or_else(PoisonError::into_inner) = Some(pod);
                Ok(id)
            }
            .boxed()
        }
    };
    // A name is created or restored once at a time.
    let outcome = parts.flights.run_sandbox.run(name.clone(), work).await;
    drop(caller);
    let exists = |id| Error::new(ErrorKind::AlreadyExists, format!("the pod was created as {id} at the same time"));
    let pod =
        outcome.map(|id| restored.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(|| exists(id)));
    pod.and_then(|pod| pod).map_err(|error| error.during(operation))
}

/// A checkpoint that fits the request.
struct Saved {
    description: Description,
    state: File,
    /// In the order of the description, with the requested configuration and the image of each.
    containers: Vec<(SavedContainer, Arc<ContainerConfig>, Image)>,
}

async fn run(parts: &Arc<Parts>, request: PodRestore, gone: oneshot::Receiver<()>) -> Result<RestoredPod, Error> {
    let PodRestore { checkpoint, config, containers, timeout } = request;
    check_support(parts, &config).await?;
    parts.require_user_namespaces(&config).await?;
    let required = plugins::require(parts, &config, "").await?;
    let saved = {
        let (parts, config) = (Arc::clone(parts), config.clone());
        blocking(move || open(&parts, &checkpoint, &config, containers)).await?
    };
    if let Some(id) = ready(parts, &config.name) {
        return Err(Error::new(ErrorKind::AlreadyExists, format!("the pod exists as {id}; remove it first")));
    }
    // The parent cgroup of all pods must not be removed while something is created in it.
    let _creation_lock = parts.creation_lock.read().await;
    let config = with_cgroup_parent(parts, Arc::new(config))?;
    let reserved = Reserved::new(parts, config, true)?;
    let sandbox = Arc::clone(reserved.sandbox());
    let aborted = abort_reason(&sandbox, timeout, gone);
    let work = async {
        let networked = reserved.network().await?;
        restore_networked(parts, &sandbox, networked, &saved, &required).await
    };
    tokio::pin!(work, aborted);
    let reason = tokio::select! {
        biased;
        outcome = &mut work => return outcome,
        reason = &mut aborted => reason,
    };
    // It rolls back at its next step.
    sandbox.cancel();
    match work.await {
        Ok(pod) => Err(with_undo(reason, remove(parts, &pod.id).await)),
        Err(error) => Err(Error { message: format!("{}: {}", reason.message, error.message), ..reason }),
    }
}

/// Refuses a handler or programs that cannot restore pods.
async fn check_support(parts: &Parts, config: &SandboxConfig) -> Result<(), Error> {
    let name = &config.runtime_handler;
    let Handler::Vm(hypervisor) = parts.node.handlers.get(name)? else {
        let message =
            format!("runtime handler {name:?} cannot restore pods; use the handler that the pod was saved with");
        return Err(Error::new(ErrorKind::Unimplemented, message));
    };
    check_handler(parts, config).await?;
    if hypervisor.file_server_migrates().await {
        return Ok(());
    }
    let message = format!(
        "{} cannot take over a state: its --print-capabilities does not list migrate-precopy; install virtiofsd 1.13 or newer",
        hypervisor.handler.file_server.display()
    );
    Err(Error::new(ErrorKind::Unimplemented, message))
}

/// Opens a checkpoint that fits the request. Blocks.
fn open(
    parts: &Parts,
    checkpoint: &std::path::Path,
    config: &SandboxConfig,
    requested: Vec<ContainerConfig>,
) -> Result<Saved, Error> {
    let source = Source::open(checkpoint)?;
    let description = Description::read(&source)?;
    compare::check_pod(&description, config)?;
    let state = source.file(STATE)?;
    let mut containers = Vec::new();
    for (index, saved, config) in compare::pair(&description, requested)? {
        let image = parts.node.images.find(&config.image)?;
        let image = image.ok_or_else(|| {
            let message = format!("image {:?} is not present on this node; pull it first", config.image);
            Error::new(ErrorKind::NotFound, message)
        })?;
        compare::check_container(saved, &config, &image.id)?;
        let container = SavedContainer { guest_id: saved.guest_id.clone(), layer: source.file(&layer(index))? };
        containers.push((container, Arc::new(config), image));
    }
    Ok(Saved { description, state, containers })
}

async fn restore_networked(
    parts: &Arc<Parts>,
    sandbox: &Arc<Sandbox>,
    networked: Networked<'_>,
    saved: &Saved,
    required: &[String],
) -> Result<RestoredPod, Error> {
    let (machine, containers) = match restore_machine(parts, sandbox, saved).await {
        Ok(restored) => restored,
        Err(error) => return Err(networked.roll_back(error).await),
    };
    let id = networked.announce(required).await?.publish().await?;
    failpoint::reach("restore.ready");
    parts.registry.sandbox_names.assign(sandbox.config().name.clone(), id.clone());
    machine.processes().into_iter().for_each(|process| after_exit::container_started(parts, &process));
    containers.iter().for_each(|container| vm::watch(parts, container));
    vm::check_health(parts, sandbox);
    let containers = containers.iter().map(|container| (container.config().name.clone(), container.id().clone()));
    Ok(RestoredPod { id, containers: containers.collect() })
}

/// Restores the virtual machine and the containers. After an error, the caller removes them.
async fn restore_machine<'a>(
    parts: &'a Arc<Parts>,
    sandbox: &'a Arc<Sandbox>,
    saved: &'a Saved,
) -> Result<(RestoredMachine<'a>, Vec<Arc<Container>>), Error> {
    sandbox.stage("restore its containers");
    let mut machine = RestoredMachine::begin(parts, sandbox, &saved.description.machine).await?;
    let (mut containers, mut ports) = (Vec::new(), SavedPorts::default());
    for ((container, config, image), described) in saved.containers.iter().zip(&saved.description.containers) {
        sandbox.check_cancelled()?;
        vm::check_size(parts, sandbox, &config.resources)?;
        let container = create_saved(parts, sandbox, image, Arc::clone(config), container).await?;
        compare::check_mounts(described, &container.spec(&parts.registry.records)?)?;
        ports.add(&parts.registry.records.directory(container.id()), &container)?;
        containers.push(container);
    }
    sandbox.stage("restore its virtual machine");
    machine.load(&saved.state, ports, &saved.description.exited).await?;
    for container in &containers {
        // The guest has the limits that the containers had.
        let size = vm::update(parts, container, &container.config().resources).await?;
        vm::settle(parts, container, size).await;
    }
    failpoint::reach("restore.loaded");
    sandbox.check_cancelled()?;
    Ok((machine, containers))
}
