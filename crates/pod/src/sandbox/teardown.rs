//! Taking away what a pod is made of: the same list after a failed run, on stop, on remove and after a crash.

use std::sync::{Arc, atomic::Ordering};

use super::{FILES, SHM, Sandbox, SandboxPhase, Shared, namespaces::init_group};
use crate::{
    Error,
    container::volume,
    engine::{Inner, blocking},
    failpoint, reconcile, remains,
    state::Kind,
    undo::Undo,
};

/// What stands behind the pod, all but its record: every step is idempotent.
pub(super) async fn release(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    let id = sandbox.id();
    let mut undo = Undo::default();
    sandbox.stage("end its init");
    let init = async {
        // Held until the monitor has forgotten it: its end is not taken for an accident.
        let mut held = sandbox.pid.lock().await;
        held.take();
        if engine.monitor.custody().holds(id) { engine.monitor.delete(id).await } else { Ok(()) }
    };
    undo.step("end the pod's init", init).await;
    let group = remains::end_group(engine, init_group(engine, sandbox), id);
    undo.step("end what is left of the pod's init", group).await;
    failpoint::reach("teardown.init");
    if sandbox.config().network == super::SharedMode::Pod {
        sandbox.stage("detach from the network");
        undo.step("detach from the network", engine.network.detach(id)).await;
        sandbox.plugin_calls(engine);
        failpoint::reach("teardown.detached");
        let unpin = {
            let (engine, id) = (Arc::clone(engine), id.to_owned());
            move || engine.pins.unpin(&id).map_err(|e| Error::internal(e.to_string()))
        };
        undo.step("unpin the network namespace", blocking(unpin)).await;
        failpoint::reach("teardown.unpinned");
    }
    let points = [SHM, FILES].map(|name| engine.records.directory(Kind::Sandbox, id).join(name));
    let attached = offload::here(|| points.into_iter().filter(|point| point.exists()).collect::<Vec<_>>());
    for point in attached {
        let detach = async { offload::here(|| volume::detach(&point)) };
        undo.step("unmount what older kernels need attached", detach).await;
    }
    undo.step("release namespaces", engine.monitor.release(&Shared::key(id))).await;
    undo.finish().inspect_err(|error| sandbox.failed(&error.message))
}

/// Everything, with the record. The reconciler tries it again with a pod that was never ready, callers with others: the
/// record stays for it.
pub(crate) async fn teardown(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    remove(engine, sandbox).await.inspect_err(|_| {
        if sandbox.record().phase.is_early() {
            engine.unfinished.store(true, Ordering::Relaxed);
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
