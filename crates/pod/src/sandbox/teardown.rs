//! Teardown of a pod: the same steps after a failed creation, on stop, on remove and after a crash.

use std::sync::{Arc, atomic::Ordering};

use super::{parent_cgroup, vm};
use crate::{
    Error, SharedMode,
    container::{prepare::volume, remove::remove_locked, shim},
    namespaces::{FILES, SHM, SharedResource},
    operation::{Undo, blocking, failpoint},
    parts::Parts,
    store::{Sandbox, SandboxPhase},
};

/// Removes everything of a pod except its record. Every step is idempotent.
pub(super) async fn release(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    let id = sandbox.id();
    let mut undo = Undo::default();
    undo.step("end its virtual machine", vm::end(parts, sandbox)).await;
    undo.step("end its shims", shim::kill_pod(parts, sandbox)).await;
    failpoint::reach("teardown.shims");
    sandbox.stage("stop its init");
    let init = async {
        // Locked until the monitor has removed the init, so that its exit is not handled as unexpected.
        let mut held = sandbox.pid.lock().await;
        held.take();
        if parts.monitor.custody().holds(id.as_str()) { parts.monitor.delete(id.as_str()).await } else { Ok(()) }
    };
    undo.step("stop the pod's init", init).await;
    let group = parts.node.remove_group(parts.node.init_cgroup_of(sandbox), id.as_str());
    undo.step("remove the cgroup of the pod's init", group).await;
    parts.node.forget_scope(&parts.node.init_cgroup_of(sandbox));
    if let Some(path) = parts.node.empty_cgroup_of(sandbox) {
        undo.step("remove the empty cgroup of the pod", parts.node.remove_group(path, id.as_str())).await;
    }
    failpoint::reach("teardown.init");
    if sandbox.config().network == SharedMode::Pod {
        sandbox.stage("detach from the network");
        undo.step("detach from the network", parts.node.network.detach(id.as_str())).await;
        sandbox.add_plugin_calls(&parts.node.network);
        failpoint::reach("teardown.detached");
        let unpin = {
            let (parts, id) = (Arc::clone(parts), id.to_owned());
            move || parts.node.pins.unpin(id.as_str()).map_err(|e| Error::internal(e.to_string()))
        };
        undo.step("unpin the network namespace", blocking(unpin)).await;
        failpoint::reach("teardown.unpinned");
    }
    if let Some(pins) = &parts.node.namespace_pins {
        offload::in_place(|| pins.unpin(id.as_str()));
    }
    let points = [SHM, FILES].map(|name| parts.registry.records.directory(id).join(name));
    let attached = offload::in_place(|| points.into_iter().filter(|point| point.exists()).collect::<Vec<_>>());
    for point in attached {
        let detach = async { offload::in_place(|| volume::detach(&point)) };
        undo.step("unmount tmpfs mounts of older kernels", detach).await;
    }
    undo.step("release namespaces", parts.monitor.release(&SharedResource::key(id))).await;
    undo.finish().inspect_err(|error| sandbox.failed(&error.message))
}

/// Removes everything of a pod, including its record. After a failure the record stays: the reconciler retries for a
/// pod that was never ready, the caller for other pods.
pub(crate) async fn teardown(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    remove(parts, sandbox).await.inspect_err(|_| {
        if sandbox.record().phase.is_early() {
            parts.cleanup_pending.store(true, Ordering::Relaxed);
        }
    })?;
    parts.forget_sandbox(sandbox);
    if parts.registry.sandboxes().is_empty() {
        parent_cgroup::remove_when_idle(parts);
    }
    Ok(())
}

/// Removes the containers of a pod that is being restored. Nothing of them has run.
async fn remove_restored(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    let mut undo = Undo::default();
    undo.step("end its virtual machine", vm::end(parts, sandbox)).await;
    for container in parts.registry.listed_containers_of(sandbox.id()) {
        let removed = async {
            let _busy = container.busy.lock().await;
            match parts.registry.container(container.id()) {
                Ok(container) => remove_locked(parts, &container).await,
                Err(_) => Ok(()),
            }
        };
        undo.step("remove a container", removed).await;
    }
    undo.finish()
}

async fn remove(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    if sandbox.is_restoring() {
        remove_restored(parts, sandbox).await?;
    }
    if sandbox.record().phase != SandboxPhase::Stopped {
        release(parts, sandbox).await?;
    }
    parts.node.remove_pod_cgroup(sandbox).await?;
    failpoint::reach("teardown.released");
    parts.registry.records.remove(sandbox.id())
}
