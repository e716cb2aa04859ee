//! Memory and processors of a virtual machine follow the limits of its pod (`node/guest_size.rs`).
//!
//! ```text
//! grow    request memory, plug processors ─▶ wait until the guest has them online   before limits allow to use them
//! shrink  request less memory             ─▶ the guest gives back what it can       after limits
//! ```
//! One change of a pod after the other: each is computed from the limits on record, and holds [`SizeLock`] until its own are. Nothing
//! else is stored: the limits are on record, and the virtual machine monitor knows what the guest has. Processors are not
//! removed: one that is idle costs nearly nothing.

use std::{sync::Arc, time::Duration};

use cgroup::Limits;
use vm::{
    qemu::Qemu,
    vmm::{Cpus, Memory, Vmm},
};

use super::{connection, find_process, from_guest, from_vmm};
use crate::{
    ContainerId, Error, ErrorKind, VmProcess,
    error::failed,
    node::{Bounds, Demand, Handler, Target},
    operation::blocking,
    parts::Parts,
    store::{ContainerPhase, Sandbox, VmConnection},
};

/// How long a guest may take to set memory and processors online. Emulated, it takes 0.1 s for 1 GiB and 0.7 s for a processor.
const GROW_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause until it is queried again. It is doubled up to the second one.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// How long a guest may take to give back memory before the limit of its pod is lowered.
const SHRINK_TIMEOUT: Duration = Duration::from_secs(10);
/// The page tables of memory take this part of it, in the monitor and in the kernel's hypervisor.
const PAGE_TABLES: u64 = 128;

/// Held from a change of the size until the limits that require it are on record.
pub(crate) type SizeLock = tokio::sync::OwnedMutexGuard<()>;

/// How the limits of a pod differ from those on record.
#[derive(Clone, Copy)]
pub(crate) enum Change<'a> {
    /// They do not.
    None,
    /// The pod has these limits.
    Pod(Option<&'a oci::Resources>),
    /// This container has these limits.
    Container(&'a ContainerId, &'a oci::Resources),
    /// This container has ended.
    Without(&'a ContainerId),
}

/// Refuses a new container whose limits the virtual machine of its pod cannot have. Does not depend on the guest.
pub(crate) fn check(parts: &Parts, sandbox: &Sandbox, container: &oci::Resources) -> Result<(), Error> {
    let Handler::Vm(hypervisor) = parts.node.handlers.get(&sandbox.config().runtime_handler)? else { return Ok(()) };
    let (pod, mut containers) = limits(parts, sandbox, Change::None);
    containers.push(container.clone());
    let bounds = offload::in_place(|| hypervisor.bounds());
    bounds.target(Demand::new(pod.as_ref(), &containers)).map(drop)
}

/// Whether a pod is a virtual machine.
pub(crate) fn is_vm(parts: &Parts, sandbox: &Sandbox) -> bool {
    find_process(parts, sandbox.id(), VmProcess::Hypervisor).is_some()
}

/// Gives the virtual machine of a pod what its limits allow after a change, and waits until the guest has it. It gets
/// nothing back.
///
/// # Errors
/// `ResourceExhausted` if the virtual machine cannot have that much: nothing is changed. `DeadlineExceeded` if the guest does not
/// set it online: memory that it has not plugged is not requested anymore.
pub(crate) async fn grow(parts: &Arc<Parts>, sandbox: &Sandbox, change: Change<'_>) -> Result<SizeLock, Error> {
    let work = async {
        let size = Arc::clone(&sandbox.vm_size).lock_owned().await;
        grow_locked(parts, sandbox, change).await.map(|()| size)
    };
    sandbox.unless_stopped(work).await
}

async fn grow_locked(parts: &Arc<Parts>, sandbox: &Sandbox, change: Change<'_>) -> Result<(), Error> {
    let connection = connection(parts, sandbox).await?;
    let (memory, cpus) = sizes(&connection.qemu).await?;
    let target = bounds(memory, cpus).target(demand(parts, sandbox, change))?;
    // What the guest has not given back yet is in use. What an escaped monitor reports is bounded by what it may have.
    let in_use = memory.plugged.min(pluggable(parts, sandbox));
    let limited = limit_monitor(parts, sandbox, target.added_memory.max(in_use)).await;
    match limited {
        // One that cannot be lowered yet is lowered by a later change.
        Err(error) if target.added_memory <= memory.requested => {
            tracing::debug!(pod = sandbox.id().as_str(), "{error}");
        }
        limited => limited?,
    }
    if target.added_memory == 0 && target.cpus <= cpus.boot {
        return Ok(());
    }
    let context = |error: Error| error.during("add memory and processors to the virtual machine of the pod");
    let grown = request(&connection, target, memory, cpus).await;
    if let Err(error) = grown {
        if target.added_memory > memory.requested
            && let Err(also) = connection.qemu.plug_memory(memory.requested).await
        {
            tracing::debug!(pod = sandbox.id().as_str(), "{also}");
        }
        return Err(context(error));
    }
    Ok(())
}

/// Has the guest of a pod give back the memory that its limits do not allow to use anymore, as far and as soon as it can.
pub(crate) async fn shrink(parts: &Parts, sandbox: &Sandbox, size: SizeLock) {
    report(sandbox, try_shrink(parts, sandbox, Change::None).await);
    drop(size);
}

/// Has the guest of a pod give back the memory that these limits of the pod do not allow to use, and waits for it a while: the kernel
/// of the node would end a virtual machine that has more than its cgroup may have.
pub(crate) async fn shrink_for_pod(parts: &Parts, sandbox: &Sandbox, resources: Option<&oci::Resources>, _: &SizeLock) {
    let given_back = async {
        let connection = connection(parts, sandbox).await?;
        let target = try_shrink(parts, sandbox, Change::Pod(resources)).await?;
        while connection.qemu.memory().await.map_err(from_vmm)?.plugged > target.added_memory {
            tokio::time::sleep(PAUSE_MAX).await;
        }
        Ok(target)
    };
    match tokio::time::timeout(SHRINK_TIMEOUT, given_back).await {
        Ok(outcome) => report(sandbox, outcome),
        Err(_) => tracing::warn!(
            pod = sandbox.id().as_str(),
            "the guest does not give back memory above the limit of its pod"
        ),
    }
}

fn report(sandbox: &Sandbox, outcome: Result<Target, Error>) {
    if let Err(error) = outcome {
        tracing::debug!(pod = sandbox.id().as_str(), "request memory of the guest back: {error}");
    }
}

/// Has the guest give back the memory of a container that has ended, in a task of its own.
pub(super) fn shrink_without(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>, container: &ContainerId) {
    let (parts, sandbox, container) = (Arc::downgrade(parts), Arc::clone(sandbox), container.clone());
    offload::spawn(async move {
        if let Some(parts) = parts.upgrade() {
            let _size = sandbox.vm_size.lock().await;
            report(&sandbox, try_shrink(&parts, &sandbox, Change::Without(&container)).await);
        }
    });
}

/// Requests the guest to have what the limits allow, if it has more. The caller holds the lock of the size.
async fn try_shrink(parts: &Parts, sandbox: &Sandbox, change: Change<'_>) -> Result<Target, Error> {
    let connection = connection(parts, sandbox).await?;
    let (memory, cpus) = sizes(&connection.qemu).await?;
    let target = bounds(memory, cpus).target(demand(parts, sandbox, change))?;
    if target.added_memory < memory.requested {
        connection.qemu.plug_memory(target.added_memory).await.map_err(from_vmm)?;
    }
    Ok(target)
}

/// Returns the memory that can be added to a pod by its handler; any, if that is not configured anymore.
fn pluggable(parts: &Parts, sandbox: &Sandbox) -> u64 {
    match parts.node.handlers.get(&sandbox.config().runtime_handler) {
        Ok(Handler::Vm(hypervisor)) => offload::in_place(|| hypervisor.bounds()).pluggable,
        _ => u64::MAX,
    }
}

/// Returns the limit of a virtual machine monitor whose guest has this much memory, and which needs `own` for itself.
pub(crate) fn monitor_limit(memory: u64, own: u64) -> oci::Resources {
    let limit = memory.saturating_add(memory / PAGE_TABLES).saturating_add(own);
    let memory = Some(oci::Memory { limit: Some(i64::try_from(limit).unwrap_or(i64::MAX)), ..oci::Memory::default() });
    oci::Resources { memory, ..oci::Resources::default() }
}

/// Limits the virtual machine monitor to what it may use with this much memory in addition to that of its boot: a hostile guest can
/// use memory of virtio-mem that was not added. Not the file server: files of memory-backed volumes count as its memory.
pub(crate) async fn limit_monitor(parts: &Arc<Parts>, sandbox: &Sandbox, added_memory: u64) -> Result<(), Error> {
    let Some(container) = find_process(parts, sandbox.id(), VmProcess::Hypervisor) else { return Ok(()) };
    let at_boot = container.config().resources.memory.as_ref().and_then(|memory| memory.limit);
    let Some(at_boot) = at_boot else { return Ok(()) };
    let resources = monitor_limit(added_memory, at_boot.unsigned_abs());
    // On record, so that systemd gets it from a later daemon, too.
    parts.registry.update_container(&container, |record| {
        record.resources = Some(resources.clone());
        true
    })?;
    let parts = Arc::clone(parts);
    blocking(move || {
        let operation = "limit the memory of the virtual machine monitor";
        let limits = Limits::from_spec(&resources).map_err(failed(operation))?;
        container.group(&parts.node.trees)?.update(&limits).map_err(failed(operation))?;
        parts.node.update_scope(&container.metadata.cgroup, resources);
        Ok(())
    })
    .await
}

/// Returns what the virtual machine monitor reports.
async fn sizes(qemu: &Qemu) -> Result<(Memory, Cpus), Error> {
    Ok((qemu.memory().await.map_err(from_vmm)?, qemu.cpus().await.map_err(from_vmm)?))
}

/// Returns the bounds of a virtual machine that is running: its handler may have been changed since it was booted.
fn bounds(memory: Memory, cpus: Cpus) -> Bounds {
    Bounds { memory: memory.boot, pluggable: memory.pluggable, cpus: cpus.boot, cpus_max: cpus.max }
}

fn demand(parts: &Parts, sandbox: &Sandbox, change: Change<'_>) -> Demand {
    let (pod, containers) = limits(parts, sandbox, change);
    Demand::new(pod.as_ref(), &containers)
}

/// Returns the limits of a pod and of its containers that have not exited, after a change.
fn limits(parts: &Parts, sandbox: &Sandbox, change: Change<'_>) -> (Option<oci::Resources>, Vec<oci::Resources>) {
    let pod = match change {
        Change::Pod(resources) => resources.cloned(),
        _ => sandbox.record().resources.clone().or_else(|| sandbox.config().resources.clone()),
    };
    let mut containers = Vec::new();
    for container in parts.registry.containers_of(sandbox.id()) {
        let record = container.record();
        if container.is_sandbox_container() || record.phase == ContainerPhase::Exited {
            continue;
        }
        match change {
            Change::Without(id) if container.id() == id => {}
            Change::Container(id, resources) if container.id() == id => containers.push(resources.clone()),
            _ => containers.push(record.resources.as_ref().unwrap_or(&container.config().resources).clone()),
        }
    }
    (pod, containers)
}

/// Requests what is missing, and waits until the guest has it online.
async fn request(connection: &VmConnection, target: Target, memory: Memory, cpus: Cpus) -> Result<(), Error> {
    let mut state = "the virtual machine monitor adds it".to_owned();
    let work = async {
        if target.added_memory > memory.requested {
            connection.qemu.plug_memory(target.added_memory).await.map_err(from_vmm)?;
        }
        if target.cpus > cpus.present {
            connection.qemu.plug_cpus(target.cpus).await.map_err(from_vmm)?;
        }
        wait(connection, target, &mut state).await
    };
    let waited = tokio::time::timeout(GROW_TIMEOUT, work).await;
    waited.unwrap_or_else(|_| {
        let Target { added_memory, cpus } = target;
        let seconds = GROW_TIMEOUT.as_secs();
        Err(Error::new(
            ErrorKind::DeadlineExceeded,
            format!(
                "after {seconds} s the guest does not have {added_memory} bytes more and {cpus} processors: {state}"
            ),
        ))
    })
}

/// Waits until the guest has at least this online. `state` is what is missing at the moment.
async fn wait(connection: &VmConnection, target: Target, state: &mut String) -> Result<(), Error> {
    let mut pause = PAUSE;
    loop {
        let plugged = connection.qemu.memory().await.map_err(from_vmm)?.plugged;
        let online = connection.guest.online().await.map_err(from_guest);
        match online {
            // A guest that reports too much harms itself only.
            Ok(online)
                if plugged >= target.added_memory
                    && online.added_memory >= target.added_memory
                    && online.cpus >= target.cpus =>
            {
                return Ok(());
            }
            Ok(online) => {
                *state = format!(
                    "it has plugged {plugged} bytes, and has {} bytes and {} processors online",
                    online.added_memory, online.cpus
                );
            }
            // A processor that is being added cannot be set online for a moment.
            Err(error) if error.kind == ErrorKind::Internal => *state = error.message,
            Err(error) => return Err(error),
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}
