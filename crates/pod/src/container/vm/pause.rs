//! Pauses a virtual machine for a checkpoint, and continues it, also after a daemon that was killed in between.
//!
//! ```text
//! freeze  on record ─▶ the guest freezes the containers
//! pause   the virtual machine is paused ─▶ what its ports have taken is written
//! continue_paused  ends the save ─▶ the virtual machine runs ─▶ the guest thaws the containers ─▶ not on record
//! ```

use std::{sync::Arc, time::Duration};

use vm::{
    qemu::{Qemu, SOCKET},
    vmm::{Status, Vmm},
};

use super::{
    connection,
    connection::VMM_TIMEOUT,
    from_guest, from_vmm,
    ports::{drain, output_owners},
    process::find_process,
    sockets::SocketDirectory,
};
use crate::{
    Error, VmProcess,
    operation::{Undo, failpoint},
    parts::Parts,
    store::{Container, ContainerPhase, Sandbox, VmConnection},
};

/// How long output may take to reach the FIFOs before the virtual machine is paused: a full log file system delays it.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long what a paused virtual machine has taken of its output may take to be written.
const PAUSED_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Records that the pod is being saved, and has its guest freeze these containers. The caller holds the lock `pause` of the pod, and
/// calls [`continue_paused`] in any case.
pub(crate) async fn freeze(
    parts: &Parts,
    sandbox: &Sandbox,
    connection: &VmConnection,
    containers: &[Arc<Container>],
) -> Result<(), Error> {
    parts.registry.update_sandbox(sandbox, |record| record.checkpointing = true)?;
    failpoint::reach("checkpoint.recorded");
    for container in containers {
        connection.guest.freeze(container.guest_id().as_str(), true).await.map_err(from_guest)?;
    }
    failpoint::reach("checkpoint.frozen");
    Ok(())
}

/// Pauses the virtual machine when its output is written: what is in the queues would be written twice, by this virtual machine
/// and by the restored one.
pub(crate) async fn pause(connection: &VmConnection) -> Result<(), Error> {
    for owner in output_owners(&connection.qemu) {
        if !drain(&connection.qemu, &owner, DRAIN_TIMEOUT).await {
            return Err(Error::state("output of a container or command is not read, so that it cannot be saved"));
        }
    }
    connection.qemu.pause().await.map_err(from_vmm)?;
    for owner in output_owners(&connection.qemu) {
        // The rest is part of the saved state, and is written by both.
        drain(&connection.qemu, &owner, PAUSED_DRAIN_TIMEOUT).await;
    }
    failpoint::reach("checkpoint.paused");
    Ok(())
}

/// Continues a virtual machine that may be paused, and has its guest thaw all containers. Idempotent. The caller holds the lock
/// `pause` of the pod.
pub(crate) async fn continue_paused(parts: &Parts, sandbox: &Sandbox) -> Result<(), Error> {
    resume(parts, sandbox).await?;
    let connection = connection(parts, sandbox).await?;
    let mut undo = Undo::default();
    for container in parts.registry.listed_containers_of(sandbox.id()) {
        let record = container.record();
        if matches!(record.phase, ContainerPhase::Starting | ContainerPhase::Running) && !record.frozen {
            let thawed = async {
                match connection.guest.freeze(container.guest_id().as_str(), false).await {
                    // It was killed in the meantime.
                    Err(error) if error.kind == vm::guest::ErrorKind::NotFound => Ok(()),
                    outcome => outcome.map_err(from_guest),
                }
            };
            undo.step("thaw a container", thawed).await;
        }
    }
    undo.finish()?;
    parts.registry.update_sandbox(sandbox, |record| record.checkpointing = false)
}

/// Whether the virtual machine of a pod is paused for a checkpoint.
pub(super) enum Interruption {
    None,
    InProgress,
}

/// Continues the virtual machine of a pod whose checkpoint was interrupted.
pub(super) async fn continue_interrupted(parts: &Parts, sandbox: &Sandbox) -> Result<Interruption, Error> {
    if !sandbox.record().checkpointing {
        return Ok(Interruption::None);
    }
    let Ok(_pause) = sandbox.pause.try_write() else { return Ok(Interruption::InProgress) };
    if sandbox.record().checkpointing {
        tracing::warn!(pod = sandbox.id().as_str(), "a checkpoint of the pod was interrupted: the pod continues");
        continue_paused(parts, sandbox).await?;
    }
    Ok(Interruption::None)
}

/// Has the virtual machine run. Over a connection of its own if there is none: a paused one has no agent that answers.
async fn resume(parts: &Parts, sandbox: &Sandbox) -> Result<(), Error> {
    let held = sandbox.vm.lock().await;
    if let Some(connection) = held.as_ref().filter(|connection| !connection.is_closed()) {
        return resume_with(&connection.qemu).await;
    }
    let hypervisor = find_process(parts, sandbox.id(), VmProcess::Hypervisor);
    let hypervisor = hypervisor.ok_or_else(|| Error::unavailable("the pod has no virtual machine monitor"))?;
    let sockets = SocketDirectory::open(&hypervisor).await?;
    let qemu = Qemu::connect(&sockets.path(SOCKET), VMM_TIMEOUT).await.map_err(from_vmm)?;
    resume_with(&qemu).await
}

async fn resume_with(qemu: &Qemu) -> Result<(), Error> {
    qemu.cancel_save().await.map_err(from_vmm)?;
    match qemu.status().await.map_err(from_vmm)? {
        Status::Paused => qemu.resume().await.map_err(from_vmm),
        _ => Ok(()),
    }
}
