//! `StopPodSandbox`: its containers are killed, its network is taken away, its record stays.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;

use super::{Sandbox, SandboxPhase, teardown::release};
use crate::{
    Error, ErrorKind,
    container::{self, ContainerPhase},
    engine::Inner,
    joined::Operation,
    lanes::patiently,
};

/// Stops it; one that is stopped or unknown succeeds. Who asks again joins. One that is only just being made is taken
/// back: a plugin of the network that runs for it is ended.
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
    engine.joined.join(Operation::StopSandbox, sandbox.id(), work).await
}

/// Containers that use a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// All that are in it.
    All,
    /// Those that have not ended.
    Living,
}

/// Stops a pod that no container uses, and returns whether it is stopped. It is decided while nothing can be made in
/// the pod: a container that is just being made is waited for, and uses it.
pub(crate) async fn stop_unused(engine: &Arc<Inner>, id: &str, users: Users) -> Result<bool, Error> {
    let sandbox = match engine.sandbox(id) {
        Ok(sandbox) => sandbox,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let gate = patiently(sandbox.gate.write(), || doing(engine, &sandbox)).await;
    let _alone = gate.map_err(|e| e.during(format_args!("stop pod {}", sandbox.id())))?;
    let uses = |phase: ContainerPhase| users == Users::All || phase != ContainerPhase::Exited;
    if engine.containers_of(sandbox.id()).iter().any(|container| uses(container.record().phase)) {
        return Ok(false);
    }
    stop_locked(engine, &sandbox).await.map(|()| true)
}

async fn begin(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    let _alone = alone(engine, sandbox, "stop").await?;
    if engine.sandbox(sandbox.id()).is_err() {
        // It was being made, and is taken back.
        return Ok(());
    }
    stop_locked(engine, sandbox).await
}

/// Its gate, when nothing is made in it any more. What runs in it is killed before: that waits for nothing.
pub(super) async fn alone<'a>(
    engine: &Arc<Inner>,
    sandbox: &'a Arc<Sandbox>,
    verb: &str,
) -> Result<tokio::sync::RwLockWriteGuard<'a, ()>, Error> {
    sandbox.cancel();
    let gate = sandbox.gate.write();
    tokio::pin!(gate);
    if let Ok(alone) = tokio::time::timeout(Duration::ZERO, &mut gate).await {
        return Ok(alone);
    }
    let containers = engine.containers_of(sandbox.id());
    let running = containers.iter().filter(|container| container.is_running());
    let killed = join_all(running.map(|container| container::stop::kill(engine, container)));
    let (gate, _told_below) = tokio::join!(patiently(gate, || doing(engine, sandbox)), killed);
    gate.map_err(|e| e.during(format_args!("{verb} pod {}", sandbox.id())))
}

/// What is being made of it or in it.
fn doing(engine: &Inner, sandbox: &Sandbox) -> String {
    let making = engine.containers_of(sandbox.id()).into_iter().map(|container| container.status());
    let making: Vec<String> = making
        .filter(|container| container.making)
        .map(|container| format!("container {} is at {:?}", container.config.name, container.stage))
        .collect();
    match making.is_empty() {
        true => format!("the pod is at {:?}", sandbox.record().stage),
        false => making.join(", "),
    }
}

/// For whoever has its gate.
pub(super) async fn stop_locked(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    if sandbox.record().phase == SandboxPhase::Stopped {
        return Ok(());
    }
    let told = |e: Error| e.during(format_args!("stop pod {}", sandbox.id()));
    sandbox.stage("end its containers");
    let containers = engine.containers_of(sandbox.id());
    let stops = containers.iter().map(|container| container::stop::stop(engine, container.id(), Duration::ZERO));
    for stopped in join_all(stops).await {
        stopped.map_err(told)?;
    }
    release(engine, sandbox).await.map_err(told)?;
    engine.sandbox_names.free_of(&sandbox.config().name, sandbox.id());
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
