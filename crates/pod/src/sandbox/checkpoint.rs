//! `CheckpointPod`: writes a pod in a virtual machine, with its memory and the writable layers of its containers, to a directory. The
//! pod continues, whatever becomes of the checkpoint.
//!
//! ```text
//! refuse what cannot be saved ─▶ lock ─▶ freeze the containers ─▶ pause ─▶ state ─▶ layers ─▶ continue ─▶ description
//! ```
//! All containers are frozen, and their guest is paused, before anything is saved, so that the checkpoint is of one point in time.
//! That a checkpoint is in progress is on record: the health check of the next daemon continues a pod whose daemon was killed
//! (`container/vm/pause.rs`).

mod attempt;
mod support;

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::sync::{OwnedMutexGuard, OwnedRwLockWriteGuard, RwLockWriteGuard, oneshot};
use vm::{coupling, qemu::SavedMemory, vmm::Vmm};

use super::saved_pod::{Description, Machine, Output, STATE, SavedContainer, layer};
use crate::{
    ContainerId, Error, ErrorKind, VmProcess,
    container::{
        checkpoint::write_layer,
        vm::{SizeLock, connection, continue_paused, find_process, freeze, from_vmm, pause},
    },
    error::failed,
    operation::{blocking, failpoint, to_completion, with_undo},
    parts::Parts,
    store::{Container, ContainerPhase, Sandbox, VmConnection},
};
use attempt::Attempt;
use support::{check_deleted_files, check_support};

/// How long the virtual machine monitor may take to write its state.
const SAVE_TIMEOUT: Duration = Duration::from_secs(600);
/// How often a pod that does not continue is tried to be continued, and the pause in between. After that, its health check does.
const CONTINUES: u32 = 3;
const CONTINUE_PAUSE: Duration = Duration::from_millis(200);
/// How long a failed checkpoint waits for the removal of its files.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);

/// A request for a checkpoint of a pod.
#[derive(Clone, Debug)]
pub struct PodCheckpoint {
    /// Absolute path of an existing, empty directory.
    pub output: PathBuf,
    /// Ids of all running containers of the pod.
    pub containers: Vec<String>,
    /// Time limit.
    pub timeout: Duration,
}

/// Writes a checkpoint. It is abandoned if the caller drops this.
pub(crate) async fn checkpoint(parts: &Arc<Parts>, id: &str, request: PodCheckpoint) -> Result<(), Error> {
    let (parts, sandbox) = (Arc::clone(parts), parts.registry.sandbox(id)?);
    let operation = format!("checkpoint pod {}", sandbox.id());
    let (caller, gone) = oneshot::channel::<()>();
    // On the heap and without its type, which is too deep for the compiler.
    let work = async move { run(&parts, &sandbox, &request, gone).await }.boxed();
    let outcome = to_completion(work).await;
    drop(caller);
    outcome.map_err(|error| error.during(operation))
}

async fn run(
    parts: &Arc<Parts>,
    sandbox: &Arc<Sandbox>,
    request: &PodCheckpoint,
    gone: oneshot::Receiver<()>,
) -> Result<(), Error> {
    let aborted = abort_reason(sandbox, request.timeout, gone);
    tokio::pin!(aborted);
    let mut job = tokio::select! {
        biased;
        error = &mut aborted => return Err(error),
        job = Job::begin(parts, sandbox, request) => job?,
    };
    let saved = tokio::select! {
        biased;
        error = &mut aborted => Err(error),
        saved = job.save() => saved,
    };
    let continued = job.continue_pod().await;
    // What is written now does not concern the pod.
    job.locks = None;
    let written = match (saved, continued) {
        (Ok(description), Ok(())) => tokio::select! {
            biased;
            error = &mut aborted => Err(error),
            written = job.attempt.write(move |output| description.write(output)) => written,
        },
        (Ok(_), Err(error)) => Err(error),
        (Err(error), continued) => Err(with_undo(error, continued)),
    };
    match written {
        Ok(()) => Ok(()),
        Err(error) => Err(with_undo(error, job.attempt.remove(CLEANUP_TIMEOUT).await)),
    }
}

/// Waits until a checkpoint or restore must be aborted, and returns why: its time is up, its caller is gone, or its pod is stopped.
pub(super) async fn abort_reason(sandbox: &Sandbox, timeout: Duration, gone: oneshot::Receiver<()>) -> Error {
    tokio::select! {
        _ = gone => Error::unavailable("its caller does not wait anymore"),
        () = tokio::time::sleep(timeout) => {
            Error::new(ErrorKind::DeadlineExceeded, format!("timed out after {} s", timeout.as_secs_f32()))
        }
        () = sandbox.cancelled() => Error::state("the pod is being stopped"),
    }
}

/// A checkpoint in progress. Nothing is created, started, stopped, updated or executed in the pod.
struct Job<'a> {
    parts: &'a Arc<Parts>,
    sandbox: &'a Arc<Sandbox>,
    /// The running containers.
    containers: Vec<Arc<Container>>,
    exited: Vec<ContainerId>,
    connection: Arc<VmConnection>,
    attempt: Attempt,
    /// Held until the pod continues.
    locks: Option<Locks<'a>>,
}

/// What keeps others from the pod.
struct Locks<'a> {
    _gate: OwnedRwLockWriteGuard<()>,
    _busy: Vec<OwnedMutexGuard<()>>,
    _size: SizeLock,
    _pause: RwLockWriteGuard<'a, ()>,
}

impl<'a> Job<'a> {
    async fn begin(parts: &'a Arc<Parts>, sandbox: &'a Arc<Sandbox>, request: &PodCheckpoint) -> Result<Self, Error> {
        check_support(parts, sandbox).await?;
        let gate = Arc::clone(&sandbox.gate).write_owned().await;
        if !sandbox.is_ready() {
            return Err(Error::state(format!("the pod is not ready: {}", sandbox.record().stage)));
        }
        let all = parts.registry.listed_containers_of(sandbox.id());
        let mut busy = Vec::new();
        for container in &all {
            busy.push(Arc::clone(&container.busy).lock_owned().await);
        }
        let size = Arc::clone(&sandbox.vm_size).lock_owned().await;
        let pause = sandbox.pause.write().await;
        let (containers, exited) = select(parts, sandbox, all, &request.containers)?;
        let connection = connection(parts, sandbox).await?;
        let path = request.output.clone();
        let attempt = Attempt::new(blocking(move || Output::open(&path)).await?);
        let locks = Some(Locks { _gate: gate, _busy: busy, _size: size, _pause: pause });
        Ok(Self { parts, sandbox, containers, exited, connection, attempt, locks })
    }

    /// Saves everything but the description, which it returns. The pod is paused afterwards, or partly frozen after an error.
    async fn save(&self) -> Result<Description, Error> {
        self.sandbox.stage("write a checkpoint");
        let description = self.describe().await?;
        freeze(self.parts, self.sandbox, &self.connection, &self.containers).await?;
        pause(&self.connection).await?;
        let server = find_process(self.parts, self.sandbox.id(), VmProcess::FileServer);
        let pid = server.map_or(0, |server| server.record().pid);
        blocking(move || check_deleted_files(pid)).await?;
        let state = self.attempt.write(|output| output.create(STATE)).await?;
        let saved = self.connection.qemu.save(state.into(), SavedMemory::Inside, SAVE_TIMEOUT).await;
        saved.map_err(from_vmm)?;
        failpoint::reach("checkpoint.state");
        for (index, container) in self.containers.iter().enumerate() {
            let upper = self.parts.node.images.upper(container.id().as_str());
            let name = layer(index);
            let write = move |output: &Output| {
                let written = write_layer(&upper, output.create(&name)?, output.path("sparse-file"));
                written.map_err(failed("save the changes of a container to its root"))
            };
            self.attempt.write(write).await?;
        }
        failpoint::reach("checkpoint.layers");
        Ok(description)
    }

    /// Describes the pod. Nothing of that changes while it is saved.
    async fn describe(&self) -> Result<Description, Error> {
        let qemu = &self.connection.qemu;
        let (memory, cpus) = (qemu.memory().await.map_err(from_vmm)?, qemu.cpus().await.map_err(from_vmm)?);
        let namespace = self.parts.node.pins.get(self.sandbox.id().as_str());
        let namespace = namespace.map_err(failed("open the network namespace of the pod"))?;
        let interfaces = blocking(move || coupling::interfaces(&namespace).map_err(from_vmm)).await?;
        let hypervisor = find_process(self.parts, self.sandbox.id(), VmProcess::Hypervisor);
        let arguments = hypervisor.map(|hypervisor| hypervisor.config().command.clone()).unwrap_or_default();
        let machine = Machine {
            kind: qemu.machine_type().await.map_err(from_vmm)?,
            qemu: qemu.version().await.map_err(from_vmm)?,
            kvm: arguments.windows(2).any(|pair| pair == ["-accel", "kvm"]),
            memory: memory.boot,
            pluggable: memory.pluggable,
            plugged: memory.plugged,
            cpus: cpus.boot,
            cpus_present: cpus.present,
            cpus_max: cpus.max,
            ports: qemu.numbered_ports(),
            interfaces: interfaces.into_iter().map(|interface| (interface.name, interface.mac)).collect(),
        };
        let describe = |container: &Arc<Container>| {
            let spec = container.spec(&self.parts.registry.records)?;
            Ok(SavedContainer {
                guest_id: container.guest_id().clone(),
                config: container.config().clone(),
                image_id: container.metadata.image_id.clone(),
                mounts: spec.mounts.into_iter().map(|mount| mount.destination).collect(),
            })
        };
        let containers = self.containers.iter().map(describe).collect::<Result<_, Error>>()?;
        let config = self.sandbox.config().clone();
        Ok(Description::new(config.runtime_handler.clone(), machine, config, containers, self.exited.clone()))
    }

    /// Continues the pod, if it was frozen. If that fails, its health check tries it again.
    async fn continue_pod(&self) -> Result<(), Error> {
        let mut outcome = Ok(());
        for _ in 0..CONTINUES {
            if !self.sandbox.record().checkpointing {
                break;
            }
            outcome = continue_paused(self.parts, self.sandbox).await;
            // A pod that is being stopped may have no virtual machine anymore.
            if outcome.is_ok() || self.sandbox.is_cancelled() {
                break;
            }
            tokio::time::sleep(CONTINUE_PAUSE).await;
        }
        if outcome.is_ok() {
            self.sandbox.stage("ready");
        }
        outcome.map_err(|error| error.during("continue the pod"))
    }
}

/// Divides the containers of a pod into those that are running, which must be exactly the requested ones, and the ids of those that
/// have exited.
fn select(
    parts: &Parts,
    sandbox: &Sandbox,
    all: Vec<Arc<Container>>,
    requested: &[String],
) -> Result<(Vec<Arc<Container>>, Vec<ContainerId>), Error> {
    let mut selected = BTreeSet::new();
    for id in requested {
        let container = parts.registry.container(id)?;
        if container.metadata.sandbox != *sandbox.id() {
            return Err(Error::invalid(format!("container_ids: container {} is in another pod", container.id())));
        }
        if !selected.insert(container.id().clone()) {
            return Err(Error::invalid(format!("container_ids: container {} is listed twice", container.id())));
        }
    }
    let (mut running, mut exited) = (Vec::new(), Vec::new());
    for container in all {
        let (id, is_selected) = (container.id().clone(), selected.contains(container.id()));
        match container.record().phase {
            ContainerPhase::Running if is_selected => running.push(container),
            ContainerPhase::Running => {
                return Err(Error::invalid(format!("container_ids: container {id} is running and not listed")));
            }
            _ if is_selected => return Err(Error::state(format!("container {id} is not running"))),
            ContainerPhase::Exited => exited.push(container.guest_id().clone()),
            _ => return Err(Error::state(format!("container {id} was not started; start or remove it"))),
        }
    }
    match running.is_empty() || running.len() != selected.len() {
        false => Ok((running, exited)),
        true => Err(Error::invalid("container_ids: they must be those of all running containers of the pod")),
    }
}
