//! The end of a container in a virtual machine: it exited, the virtual machine ended, or it is removed.

use std::{sync::Arc, time::Duration};

use agent_api::{Exit, ProcessId};
use monitor_api::{ExitStatus, KillScope, Target};
use rustix::process::Signal;

use super::{
    mounts::detach,
    ports::{drain, remove_ports},
    process::find_process,
    requests::connection_of,
    size::shrink_without,
};
use crate::{
    Error, VmProcess,
    container::external::report_exit,
    operation::{Undo, failpoint},
    parts::Parts,
    store::{Container, ContainerPhase, unknown_exit},
};

/// How long output that the guest has sent may take to reach the FIFOs: a full log file system delays it.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the guest may take to delete a container.
const DELETE_TIMEOUT: Duration = Duration::from_secs(10);
/// Handles the exit of a container that its guest reported.
pub(super) async fn exited(parts: &Arc<Parts>, container: &Arc<Container>, exit: Exit) {
    let mut ended = container.shim.ended.lock().await;
    if *ended {
        return;
    }
    // The clock of the guest is not trusted: what it reports is used only if it is plausible.
    let now = crate::clock::now();
    let at = if exit.at <= now && exit.at >= container.metadata.created_at { exit.at } else { now };
    let code = Some(exit.code.clamp(0, 255));
    let status = ExitStatus { code, signal: exit.signal, oom_killed: exit.oom_killed, at };
    // An earlier daemon may have been killed before the monitor knew it.
    let status = container.record().shim_exit.clone().unwrap_or(status);
    parts.registry.update_container_anyway(container, |record| {
        record.shim_exit = Some(status.clone());
        true
    });
    failpoint::reach("vm.exited");
    if let Ok(connection) = connection_of(parts, container).await {
        drain(&connection.qemu, container.guest_id().as_str(), DRAIN_TIMEOUT).await;
    }
    finish(parts, container, &status);
    *ended = true;
}

/// Handles the end of the virtual machine of a container.
pub(super) async fn died(parts: &Arc<Parts>, container: &Arc<Container>, reason: &str) {
    let mut ended = container.shim.ended.lock().await;
    if *ended {
        return;
    }
    let saved = container.record().shim_exit.clone();
    if saved.is_none() {
        tracing::warn!(container = container.id().as_str(), "the virtual machine of the container is lost: {reason}");
    }
    let status = saved.unwrap_or_else(unknown_exit);
    parts.registry.update_container_anyway(container, |record| {
        record.shim_exit = Some(status.clone());
        true
    });
    finish(parts, container, &status);
    *ended = true;
}

/// Gives up a container that its guest does not end: ends the virtual machine, and with it the pod. Nothing of the container
/// may keep running.
pub(crate) async fn give_up(parts: &Arc<Parts>, container: &Arc<Container>, reason: &str) {
    if let Some(hypervisor) = find_process(parts, &container.metadata.sandbox, VmProcess::Hypervisor) {
        kill_hypervisor(parts, &hypervisor).await;
    }
    died(parts, container, reason).await;
}

/// Ends a virtual machine with all that runs in it. Its pod is stopped when this process of it has exited.
pub(super) async fn end_machine(parts: &Arc<Parts>, hypervisor: &Container, reason: &str) {
    kill_hypervisor(parts, hypervisor).await;
    for container in parts.registry.containers_of(&hypervisor.metadata.sandbox) {
        if container.metadata.vm.is_some() && is_started(container.record().phase) {
            died(parts, &container, reason).await;
        }
    }
}

fn is_started(phase: ContainerPhase) -> bool {
    matches!(phase, ContainerPhase::Created | ContainerPhase::Starting | ContainerPhase::Running)
}

async fn kill_hypervisor(parts: &Parts, hypervisor: &Container) {
    let target = Target::Container(hypervisor.id().to_string());
    if let Err(error) = parts.monitor.kill(&target, Signal::KILL.as_raw(), KillScope::All).await {
        tracing::warn!(container = hypervisor.id().as_str(), "end the virtual machine: {error}");
    }
}

/// Reports the exit of a container in a task of its own.
fn finish(parts: &Arc<Parts>, container: &Arc<Container>, status: &ExitStatus) {
    offload::spawn(report_exit(Arc::downgrade(parts), Arc::clone(container), status.clone()));
}

/// Removes what is left of a container in its virtual machine. Called after the monitor has removed its cgroup. Every
/// step is idempotent, and none fails because of the guest.
pub(crate) async fn remove(parts: &Arc<Parts>, container: &Arc<Container>) -> Result<(), Error> {
    let mut ended = container.shim.ended.lock().await;
    *ended = true;
    let Ok(sandbox) = parts.registry.sandbox(&container.metadata.sandbox) else { return Ok(()) };
    // The virtual machine of a stopped pod has ended, and that of a pod that is being restored is not running.
    if sandbox.record().netns.is_some()
        && !sandbox.is_restoring()
        && let Ok(connection) = connection_of(parts, container).await
    {
        let id = ProcessId::container(container.guest_id().as_str());
        let deleted = tokio::time::timeout(DELETE_TIMEOUT, connection.guest.delete(&id)).await;
        match deleted {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(container = container.id().as_str(), "{error}"),
            Err(_) => tracing::warn!(container = container.id().as_str(), "the guest does not delete it"),
        }
        remove_ports(&connection.qemu, container.guest_id().as_str()).await;
        shrink_without(parts, &sandbox, container.id());
    }
    let mut undo = Undo::default();
    undo.step("unmount its root and volumes", detach(parts, &sandbox, container.guest_id())).await;
    undo.finish()
}
