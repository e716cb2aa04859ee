//! `StopPodSandbox`: kills the containers and detaches the pod from the network; its record stays.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;

use super::{Sandbox, SandboxPhase, teardown::release};
use crate::{
    Error, ErrorKind,
    concurrency::with_timeout,
    container::{self, ContainerPhase},
    engine::Inner,
    single_flight::Operation,
};

/// Stops a pod; succeeds if it is stopped or unknown. Concurrent requests share one stop. A pod that is being created
/// is rolled back: a network plugin that runs for it is killed.
pub(crate) async fn stop(engine: &Arc<Inner>, id: &str) -> Result<(), Error> {
    let sandbox = match engine.sandbox(id) {
        Ok(sandbox) => sandbox,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let work = {
        let (engine, sandbox) = (Arc::clone(engine), Arc::clone(&sandbox));
        || async move { begin(&engine, &sandbox).await }
    };
    engine.single_flight.run(Operation::StopSandbox, sandbox.id(), work).await
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
pub(crate) async fn stop_unused(engine: &Arc<Inner>, id: &str, users: PodUsers) -> Result<bool, Error> {
    let sandbox = match engine.sandbox(id) {
        Ok(sandbox) => sandbox,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let gate = with_timeout(sandbox.gate.write(), || current_stage(engine, &sandbox)).await;
    let _gate = gate.map_err(|e| e.during(format_args!("stop pod {}", sandbox.id())))?;
    let uses = |phase: ContainerPhase| users == PodUsers::All || phase != ContainerPhase::Exited;
    if engine.containers_of(sandbox.id()).iter().any(|container| uses(container.record().phase)) {
        return Ok(false);
    }
    stop_locked(engine, &sandbox).await.map(|()| true)
}

async fn begin(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    let _gate = lock_gate(engine, sandbox, "stop").await?;
    if engine.sandbox(sandbox.id()).is_err() {
        // Its creation was in progress, and is rolled back.
        return Ok(());
    }
    stop_locked(engine, sandbox).await
}

/// Locks the gate when no creation is in progress in the pod anymore. Running containers are killed in the meantime,
/// which needs no lock.
pub(super) async fn lock_gate<'a>(
    engine: &Arc<Inner>,
    sandbox: &'a Arc<Sandbox>,
    verb: &str,
) -> Result<tokio::sync::RwLockWriteGuard<'a, ()>, Error> {
    sandbox.cancel();
    let gate = sandbox.gate.write();
    tokio::pin!(gate);
    if let Ok(guard) = tokio::time::timeout(Duration::ZERO, &mut gate).await {
        return Ok(guard);
    }
    let containers = engine.containers_of(sandbox.id());
    let running = containers.iter().filter(|container| container.is_running());
    let kills = join_all(running.map(|container| container::stop::kill(engine, container)));
    // Failures to kill are returned by the stop that follows.
    let (gate, _kill_results) = tokio::join!(with_timeout(gate, || current_stage(engine, sandbox)), kills);
    gate.map_err(|e| e.during(format_args!("{verb} pod {}", sandbox.id())))
}

/// Describes the creations in progress of the pod and in the pod.
fn current_stage(engine: &Inner, sandbox: &Sandbox) -> String {
    let creating = engine.containers_of(sandbox.id()).into_iter().map(|container| container.status());
    let creating: Vec<String> = creating
        .filter(|container| container.creating)
        .map(|container| format!("container {} is in stage {:?}", container.config.name, container.stage))
        .collect();
    match creating.is_empty() {
        true => format!("the pod is in stage {:?}", sandbox.record().stage),
        false => creating.join(", "),
    }
}

/// Stops a pod. The caller must hold its gate.
pub(super) async fn stop_locked(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    if sandbox.record().phase == SandboxPhase::Stopped {
        return Ok(());
    }
    let with_context = |e: Error| e.during(format_args!("stop pod {}", sandbox.id()));
    sandbox.stage("stop its containers");
    let containers = engine.containers_of(sandbox.id());
    let stops = containers.iter().map(|container| container::stop::stop(engine, container.id(), Duration::ZERO));
    for stopped in join_all(stops).await {
        stopped.map_err(with_context)?;
    }
    release(engine, sandbox).await.map_err(with_context)?;
    engine.sandbox_names.release(&sandbox.config().name, sandbox.id());
    sandbox.update_anyway(&engine.records, |record| {
        record.phase = SandboxPhase::Stopped;
        record.enter("stopped");
        record.netns = None;
        if let Some(attachment) = &mut record.attachment {
            attachment.ips.clear();
        }
    });
    Ok(())
}
