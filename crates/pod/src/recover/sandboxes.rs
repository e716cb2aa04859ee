//! Recovery of sandboxes after a restart: one that was not ready yet is rolled back, a ready one gets its shared
//! resources again.

use std::sync::Arc;

use monitor_api::HoldingState;
use tokio::task::JoinHandle;

use crate::{
    Error, SandboxId, SharedMode,
    container::vm,
    error::failed,
    monitor::Inventory,
    namespaces::{SharedResource, derive, files, forget_ended_init, hostname, make_owned, make_shared, pin_shared},
    operation::blocking,
    parts::Parts,
    sandbox::teardown::teardown,
    store::{
        ContainerPhase, LoadedRecord, Sandbox, SandboxMetadata, SandboxPhase, SandboxRecord, broken_sandbox,
        broken_status,
    },
};

/// The records of all sandboxes.
pub(super) type Records = Vec<LoadedRecord<SandboxId, SandboxMetadata, SandboxRecord>>;

pub(super) fn load(parts: &Arc<Parts>, loaded: Records) {
    for LoadedRecord { id, metadata, status } in loaded {
        let (metadata, record) = match (metadata, status) {
            (Ok(metadata), Ok(status)) if metadata.id == id => {
                (metadata, status.unwrap_or_else(SandboxRecord::reserved))
            }
            (Ok(metadata), Err(why)) if metadata.id == id => {
                tracing::warn!("read the status of pod {id}: {why}; the pod is not ready");
                (metadata, broken_status(&why))
            }
            (metadata, _) => {
                let other = |_| Error::internal("its metadata belongs to another pod");
                let why = metadata.map_or_else(|why| why, other);
                tracing::warn!("read the record of pod {id}: {why}; the pod is not ready");
                broken_sandbox(&id, &why, parts.node.driver)
            }
        };
        parts.registry.insert_sandbox(Arc::new(Sandbox::new(metadata, record)));
    }
}

/// Adds a pod that containers belong to and that has no record.
pub(super) fn add_missing(parts: &Parts, id: &SandboxId) {
    let why = Error::internal("its record is gone");
    tracing::warn!("pod {id} is not ready: {why}");
    let (metadata, record) = broken_sandbox(id, &why, parts.node.driver);
    let written = parts.registry.records.create(id, &metadata);
    let written = written.and_then(|()| parts.registry.records.write_status(id, &record));
    if let Err(error) = written {
        tracing::warn!("pod {id}: {error}");
    }
    parts.registry.insert_sandbox(Arc::new(Sandbox::new(metadata, record)));
}

/// Restores the sandboxes. Called after containers were loaded, because lost resources can be derived from a running
/// one.
pub(super) async fn restore(parts: &Arc<Parts>, inventory: &mut Inventory) -> Vec<JoinHandle<()>> {
    let mut rollbacks = Vec::new();
    for sandbox in parts.registry.sandboxes() {
        inventory.objects.remove(sandbox.id().as_str());
        inventory.keys.remove(&SharedResource::key(sandbox.id()));
        let restored = match sandbox.record().phase {
            // Its resources stay as they are, for its containers.
            _ if sandbox.record().broken.is_some() => Ok(()),
            // It was ready once: its containers are removed first, and the caller that removes them removes the pod.
            SandboxPhase::Reserved | SandboxPhase::Networked
                if !sandbox.is_restoring()
                    && parts.registry.containers_of(sandbox.id()).iter().any(|c| c.config().vm_process.is_none()) =>
            {
                Ok(())
            }
            SandboxPhase::Reserved | SandboxPhase::Networked => {
                rollbacks.push(roll_back(parts, &sandbox));
                Ok(())
            }
            SandboxPhase::Stopped => Ok(()),
            SandboxPhase::Ready => {
                parts.registry.sandbox_names.assign(sandbox.config().name.clone(), sandbox.id().clone());
                vm::check_health(parts, &sandbox);
                restore_ready(parts, &sandbox).await
            }
        };
        if let Err(error) = restored {
            tracing::warn!("restore pod {}: {error}", sandbox.id());
        }
    }
    rollbacks
}

/// Rolls the creation of a sandbox back in a task: a plugin that hangs must not delay the start of the daemon.
fn roll_back(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> JoinHandle<()> {
    let (parts, sandbox) = (Arc::clone(parts), Arc::clone(sandbox));
    let (gate, creation) = (Arc::clone(&sandbox.gate).try_write_owned(), sandbox.creation.begin());
    offload::spawn(async move {
        let (_gate, _creation) = (gate, creation);
        if let Err(error) = teardown(&parts, &sandbox).await {
            tracing::warn!("roll back pod {}: {error}", sandbox.id());
        }
    })
}

/// Reports whether a pod's network namespace is not pinned any longer. On an error the pod is not given up.
fn is_unpinned(parts: &Parts, id: &SandboxId) -> bool {
    let pinned = parts.node.pins.is_pinned(id.as_str());
    pinned
        .inspect_err(|error| tracing::warn!("pod {id}: {error}; its network namespace is assumed to exist"))
        .is_ok_and(|pinned| !pinned)
}

async fn restore_ready(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    if sandbox.config().network == SharedMode::Pod && is_unpinned(parts, sandbox.id()) {
        tracing::warn!("the network namespace of pod {} is gone: the pod is not ready anymore", sandbox.id());
        return parts.registry.update_sandbox(sandbox, |record| {
            record.phase = SandboxPhase::Networked;
            record.enter("its network namespace is gone; remove the pod and create it again");
        });
    }
    if sandbox.has_resolver() {
        parts.restore_names(sandbox);
    }
    let (shared, key) = (SharedResource::of(sandbox.config()), SharedResource::key(sandbox.id()));
    let custody = parts.monitor.custody();
    let key_files = custody.key_file_count(&key);
    if key_files == shared.len() {
        return pin_namespaces(parts, sandbox);
    }
    let mut descriptors = Vec::with_capacity(shared.len());
    if key_files + 1 == shared.len() {
        // A pod of an older version, whose files were in the record's directory.
        for n in 0..key_files {
            descriptors.extend(custody.key_file(&key, n).map_err(failed("duplicate the pod's resources"))?);
        }
        descriptors.push(blocking(files::make).await?);
    } else {
        descriptors = recover_resources(parts, sandbox).await?;
    }
    if let Some(tmpfs) = descriptors.last() {
        let tmpfs = tmpfs.try_clone().map_err(failed("duplicate the pod's files"))?;
        let task_sandbox = Arc::clone(sandbox);
        let write = move || {
            let (config, record) = (task_sandbox.config(), task_sandbox.record());
            files::write(tmpfs, config, &hostname(config), record.attachment.as_ref(), task_sandbox.has_resolver())
        };
        blocking(write).await?;
    }
    if let Some(pins) = &parts.node.namespace_pins {
        offload::in_place(|| pin_shared(pins, sandbox, &descriptors));
    }
    parts.monitor.keep(key, descriptors).await
}

/// Pins the namespaces of a pod that was created before this was configured.
fn pin_namespaces(parts: &Parts, sandbox: &Sandbox) -> Result<(), Error> {
    let Some(pins) = &parts.node.namespace_pins else { return Ok(()) };
    let (custody, key) = (parts.monitor.custody(), SharedResource::key(sandbox.id()));
    let mut descriptors = Vec::new();
    for n in 0..SharedResource::of(sandbox.config()).len() {
        descriptors.extend(custody.key_file(&key, n).map_err(failed("duplicate the pod's resources"))?);
    }
    offload::in_place(|| pin_shared(pins, sandbox, &descriptors));
    Ok(())
}

/// Derives the resources of a pod from a running container, else creates new ones: then no process uses the old ones.
async fn recover_resources(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> Result<Vec<rustix::fd::OwnedFd>, Error> {
    let alive = |phase| matches!(phase, ContainerPhase::Created | ContainerPhase::Running);
    let records = parts.registry.containers_of(sandbox.id()).into_iter().map(|container| container.record());
    let pids: Vec<u32> = records.filter(|record| alive(record.phase)).map(|record| record.pid).collect();
    // A process that is a zombie by now has no namespaces anymore.
    if let Some(files) = pids.into_iter().find_map(|pid| derive(sandbox.config(), pid).ok()) {
        return Ok(files);
    }
    let hostname = hostname(sandbox.config());
    // The network namespace still exists, and the user namespace that owns it can be determined.
    let network = parts.node.pins.get(sandbox.id().as_str()).ok().filter(|_| sandbox.config().user_namespace.is_some());
    let user = network.map(syscall::user_namespace::owning_user_namespace).transpose();
    let user = user.map_err(failed("get the user namespace of the pod"))?;
    let owned = make_owned(&parts.monitor, sandbox.config(), &hostname, user).await?;
    let sandbox = Arc::clone(sandbox);
    blocking(move || make_shared(sandbox.config(), &hostname, owned)).await
}

/// Handles the exit of a pod's init: the next container that needs an init starts another.
pub(super) fn init_exited(parts: &Arc<Parts>, id: &str) {
    let Ok(sandbox) = parts.registry.sandbox(id) else { return };
    if parts.monitor.custody().process(id, &HoldingState::PodInit).is_none() {
        // It was removed on purpose.
        return;
    }
    let parts = Arc::clone(parts);
    offload::spawn(async move {
        // Another init may have been started by now.
        let mut held = sandbox.pid.lock().await;
        if let Err(error) = forget_ended_init(&parts, &sandbox, &mut held).await {
            tracing::warn!("remove the init of pod {}: {error}", sandbox.id());
        }
    });
}
