//! Teardown of a pod: the same steps after a failed creation, on stop, on remove and after a crash.

use std::sync::{Arc, atomic::Ordering};

use super::{FILES, SHM, Sandbox, SandboxPhase, SharedResource, namespaces::init_group};
use crate::{
    Error,
    container::volume,
    engine::{Inner, blocking},
    failpoint, leftovers, reconcile,
    state::Kind,
    undo::Undo,
};

/// Removes everything of a pod except its record. Every step is idempotent.
pub(super) async fn release(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    let id = sandbox.id();
    let mut undo = Undo::default();
    sandbox.stage("stop its init");
    let init = async {
        // Locked until the monitor has removed the init, so that its exit is not handled as unexpected.
        let mut held = sandbox.pid.lock().await;
        held.take();
        if engine.monitor.custody().holds(id) { engine.monitor.delete(id).await } else { Ok(()) }
    };
    undo.step("stop the pod's init", init).await;
    let group = leftovers::remove_group(engine, init_group(engine, sandbox), id);
    undo.step("remove the cgroup of the pod's init", group).await;
    failpoint::reach("teardown.init");
    if sandbox.config().network == super::SharedMode::Pod {
        sandbox.stage("detach from the network");
        undo.step("detach from the network", engine.network.detach(id)).await;
        sandbox.add_plugin_calls(engine);
        failpoint::reach("teardown.detached");
        let unpin = {
            let (engine, id) = (Arc::clone(engine), id.to_owned());
            move || engine.pins.unpin(&id).map_err(|e| Error::internal(e.to_string()))
        };
        undo.step("unpin the network namespace", blocking(unpin)).await;
        failpoint::reach("teardown.unpinned");
    }
    let points = [SHM, FILES].map(|name| engine.records.directory(Kind::Sandbox, id).join(name));
    let attached = offload::in_place(|| points.into_iter().filter(|point| point.exists()).collect::<Vec<_>>());
    for point in attached {
        let detach = async { offload::in_place(|| volume::detach(&point)) };
        undo.step("unmount tmpfs mounts of older kernels", detach).await;
    }
    undo.step("release namespaces", engine.monitor.release(&SharedResource::key(id))).await;
    undo.finish().inspect_err(|error| sandbox.failed(&error.message))
}

/// Removes everything of a pod, including its record. After a failure the record stays: the reconciler retries for a
/// pod that was never ready, the caller for other pods.
pub(crate) async fn teardown(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    remove(engine, sandbox).await.inspect_err(|_| {
        if sandbox.record().phase.is_early() {
            engine.cleanup_pending.store(true, Ordering::Relaxed);
        }
    })?;
    engine.forget_sandbox(sandbox);
    if engine.sandboxes().is_empty() {
        reconcile::when_idle(engine);
    }
    Ok(())
}

async fn remove(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    if sandbox.record().phase != SandboxPhase::Stopped {
        release(engine, sandbox).await?;
    }
    engine.remove_pod_cgroup(sandbox).await?;
    failpoint::reach("teardown.released");
    engine.records.remove(Kind::Sandbox, sandbox.id())
}
