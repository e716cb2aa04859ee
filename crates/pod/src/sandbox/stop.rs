//! `StopPodSandbox`: its containers are killed, its network is taken away, its record stays.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;

use super::{Sandbox, SandboxPhase, teardown::release};
use crate::{Error, ErrorKind, container, engine::Inner};

/// Stops it; one that is stopped or unknown succeeds.
pub(crate) async fn stop(engine: &Arc<Inner>, id: &str) -> Result<(), Error> {
    let sandbox = match engine.sandbox(id) {
        Ok(sandbox) => sandbox,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let _alone = sandbox.gate.write().await;
    stop_locked(engine, &sandbox).await
}

/// For whoever has its gate.
pub(super) async fn stop_locked(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    if sandbox.record().phase == SandboxPhase::Stopped {
        return Ok(());
    }
    let told = |e: Error| e.during(format_args!("stop pod {}", sandbox.id()));
    let containers = engine.containers_of(sandbox.id());
    let stops = containers.iter().map(|container| container::stop::stop(engine, container.id(), Duration::ZERO));
    for stopped in join_all(stops).await {
        stopped.map_err(told)?;
    }
    sandbox.stage("stopping");
    release(engine, sandbox).await.map_err(told)?;
    sandbox.update(&engine.records, |record| {
        record.phase = SandboxPhase::Stopped;
        record.stage = "stopped".into();
        record.netns = None;
        if let Some(attachment) = &mut record.attachment {
            attachment.ips.clear();
        }
    })
}
