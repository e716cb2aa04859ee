//! `StopPodSandbox`: kills the containers and detaches the pod from the network; its record stays.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use nri::Event;

use super::teardown::release;
use crate::{
    Error, ErrorKind, SandboxId, Selects,
    container::{self, announce_stop::announce_stop},
    operation::with_timeout,
    parts::{Change, Parts},
    plugins,
    store::{Container, ContainerPhase, Sandbox, SandboxPhase},
};

/// Stops a pod; succeeds if it is stopped or unknown. Concurrent requests share one stop. A pod that is being created
/// is rolled back: a network plugin that runs for it is killed.
pub(crate) async fn stop(parts: &Arc<Parts>, id: &(impl Selects<SandboxId> + ?Sized)) -> Result<(), Error> {
    let sandbox = match parts.registry.sandbox(id) {
        Ok(sandbox) => sandbox,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let work = {
        let (parts, sandbox) = (Arc::clone(parts), Arc::clone(&sandbox));
        || async move { begin(&parts, &sandbox).await }
    };
    parts.flights.change.run(Change::StopSandbox(sandbox.id().clone()), work).await
}

/// Containers that count as users of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodUsers {
    /// All containers in the pod.
    All,
    /// Containers that have not exited.
    NotExited,
}

/// Stops a pod that is not in use, and reports whether it is stopped. The decision is made while nothing can be created
/// in the pod: a container that is being created is waited for, and counts as a user.
pub(crate) async fn stop_unused(
    parts: &Arc<Parts>,
    id: &(impl Selects<SandboxId> + ?Sized),
    users: PodUsers,
) -> Result<bool, Error> {
    let sandbox = match parts.registry.sandbox(id) {
        Ok(sandbox) => sandbox,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let gate = with_timeout(sandbox.gate.write(), || current_stage(parts, &sandbox)).await;
    let _gate = gate.map_err(|e| e.during(format_args!("stop pod {}", sandbox.id())))?;
    let uses = |phase: ContainerPhase| users == PodUsers::All || phase != ContainerPhase::Exited;
    if parts.registry.listed_containers_of(sandbox.id()).iter().any(|container| uses(container.record().phase)) {
        return Ok(false);
    }
    stop_locked(parts, &sandbox).await.map(|()| true)
}

async fn begin(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    let _gate = lock_gate(parts, sandbox, "stop").await?;
    if parts.registry.sandbox(sandbox.id()).is_err() {
        // Its creation was in progress, and is rolled back.
        return Ok(());
    }
    stop_locked(parts, sandbox).await
}

/// Locks the gate when no creation is in progress in the pod anymore. Running containers are killed in the meantime,
/// which needs no lock.
pub(super) async fn lock_gate<'a>(
    parts: &Arc<Parts>,
    sandbox: &'a Arc<Sandbox>,
    verb: &str,
) -> Result<tokio::sync::RwLockWriteGuard<'a, ()>, Error> {
    sandbox.cancel();
    let gate = sandbox.gate.write();
    tokio::pin!(gate);
    if let Ok(guard) = tokio::time::timeout(Duration::ZERO, &mut gate).await {
        return Ok(guard);
    }
    let containers = parts.registry.containers_of(sandbox.id());
    let running = containers.iter().filter(|container| container.is_running());
    let kills = join_all(running.map(|container| container::stop::kill(parts, container)));
    // Failures to kill are returned by the stop that follows.
    let (gate, _kill_results) = tokio::join!(with_timeout(gate, || current_stage(parts, sandbox)), kills);
    gate.map_err(|e| e.during(format_args!("{verb} pod {}", sandbox.id())))
}

/// Describes the creations in progress of the pod and in the pod.
fn current_stage(parts: &Parts, sandbox: &Sandbox) -> String {
    let creating = parts.registry.containers_of(sandbox.id()).into_iter().map(|container| container.status());
    let creating: Vec<String> = creating
        .filter(|container| container.creating)
        .map(|container| format!("container {} is in stage {:?}", container.config.name, container.stage))
        .collect();
    match creating.is_empty() {
        true => format!("the pod is in stage {:?}", sandbox.record().stage),
        false => creating.join(", "),
    }
}

/// Divides the containers of a pod into those in its sandbox, and the sandbox container, whose end would kill the others.
pub(super) fn sandbox_last(containers: &[Arc<Container>]) -> [Vec<&Arc<Container>>; 2] {
    let (last, first) = containers.iter().partition(|container| container.is_sandbox_container());
    [first, last]
}

/// Stops a pod. The caller must hold its gate.
pub(super) async fn stop_locked(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    if sandbox.record().phase == SandboxPhase::Stopped {
        return Ok(());
    }
    let with_context = |e: Error| e.during(format_args!("stop pod {}", sandbox.id()));
    sandbox.stage("stop its containers");
    let containers = parts.registry.containers_of(sandbox.id());
    for containers in sandbox_last(&containers) {
        let stops = containers.iter().map(|container| container::stop::stop(parts, container.id(), Duration::ZERO));
        for stopped in join_all(stops).await {
            stopped.map_err(with_context)?;
        }
    }
    join_all(containers.iter().map(|container| announce_stop(parts, container))).await;
    plugins::pod_event(parts, Event::StopPodSandbox, sandbox).await;
    release(parts, sandbox).await.map_err(with_context)?;
    parts.registry.sandbox_names.release(&sandbox.config().name, sandbox.id());
    parts.registry.update_sandbox_anyway(sandbox, |record| {
        record.phase = SandboxPhase::Stopped;
        record.enter("stopped");
        record.netns = None;
    });
    Ok(())
}
