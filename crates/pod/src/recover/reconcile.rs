//! Reconciliation: removes what no object owns, after the start and periodically.
//!
//! The kernel's objects are listed first, and their owners are looked up afterwards. An owner is on record before
//! anything of it is created, and ids are never reused. So what has no owner then never gets one, whatever is created
//! in the meantime. Therefore no operation waits for the reconciler, and a plugin that hangs for one pod does not delay
//! others.

use std::{
    collections::HashSet,
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use tokio::sync::oneshot;

use super::units;
use crate::{
    Error, SharedMode,
    container::{remove::remove_locked, shim},
    monitor::orphans::Orphans,
    namespaces::{SharedResource, shim_mounts},
    operation::blocking,
    parts::Parts,
    sandbox::{parent_cgroup, teardown::teardown},
    store::{Container, ContainerPhase, Sandbox, SandboxPhase},
};

/// Interval between two passes.
const INTERVAL: Duration = Duration::from_secs(60);
/// Delay before a failed rollback is retried, at first and after many failures.
const RETRY_MIN: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(16);
/// Number of rollbacks at the same time: a plugin that hangs for one does not delay the others.
const CONCURRENT_ROLLBACKS: usize = 8;
/// How long the other steps wait for a disk that does not remove writable layers.
const LAYERS_TIMEOUT: Duration = Duration::from_secs(10);
/// Reconciles periodically for as long as the engine exists. Sends `first` after the first pass.
pub(crate) async fn run(parts: Weak<Parts>, first: oneshot::Sender<()>) {
    let mut orphans = Orphans::default();
    if let Some(parts) = parts.upgrade() {
        once(&parts).await;
        warn("shims", shim::kill_unowned(&parts).await);
    }
    let _ = first.send(());
    let mut next = Instant::now() + INTERVAL;
    let mut retry = RETRY_MIN;
    loop {
        tokio::time::sleep(retry.min(next.saturating_duration_since(Instant::now()))).await;
        let Some(parts) = parts.upgrade() else { return };
        if Instant::now() >= next {
            orphans.scan();
            once(&parts).await;
            next = Instant::now() + INTERVAL;
        } else {
            if parts.cleanup_pending.load(Ordering::Relaxed) {
                roll_back_unfinished(&parts).await;
            }
            if parts.node.network.is_unfinished() {
                remove_attachments(&parts).await;
            }
        }
        // The delay grows, so that a plugin that always fails is not called all the time.
        retry = if is_unfinished(&parts) { (2 * retry).min(RETRY_MAX) } else { RETRY_MIN };
    }
}

fn is_unfinished(parts: &Parts) -> bool {
    parts.node.network.is_unfinished() || parts.cleanup_pending.load(Ordering::Relaxed)
}

/// Runs one pass.
pub(crate) async fn once(parts: &Arc<Parts>) {
    roll_back_unfinished(parts).await;
    remove_pins(parts).await;
    remove_attachments(parts).await;
    parts.retry_names();
    remove_snapshots(parts).await;
    remove_compiled_code(parts).await;
    release_keys(parts).await;
    parent_cgroup::remove_unless_creating(parts).await;
    units::audit(parts).await;
}

fn warn(object: &str, outcome: Result<(), Error>) {
    if let Err(error) = outcome {
        tracing::warn!("remove {object} without an owner: {error}");
    }
}

/// Rolls back objects whose creation failed and could not be rolled back completely.
async fn roll_back_unfinished(parts: &Arc<Parts>) {
    parts.cleanup_pending.store(false, Ordering::Relaxed);
    let containers = stream::iter(parts.registry.containers());
    containers
        .for_each_concurrent(
            CONCURRENT_ROLLBACKS,
            |container| async move { roll_back_container(parts, &container).await },
        )
        .await;
    let sandboxes = stream::iter(parts.registry.sandboxes());
    sandboxes
        .for_each_concurrent(CONCURRENT_ROLLBACKS, |sandbox| async move { roll_back_sandbox(parts, &sandbox).await })
        .await;
}

async fn roll_back_container(parts: &Arc<Parts>, container: &Arc<Container>) {
    let is_early = || container.record().phase == ContainerPhase::Creating;
    if !is_early() {
        return;
    }
    let Ok(_busy) = container.busy.try_lock() else {
        // An operation in progress sets the flag itself if its rollback fails.
        parts.cleanup_pending.fetch_or(!container.creation.is_in_progress(), Ordering::Relaxed);
        return;
    };
    // The operation may have succeeded in the meantime.
    if is_early() {
        warn(&format!("container {}", container.id()), remove_locked(parts, container).await);
    }
}

async fn roll_back_sandbox(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) {
    let needs_rollback = || {
        let record = sandbox.record();
        // The processes of its virtual machine end with it.
        let is_kept = |container: &Arc<Container>| container.config().vm_process.is_none();
        let has_containers = parts.registry.containers_of(sandbox.id()).iter().any(is_kept);
        record.phase.is_early() && record.broken.is_none() && (!has_containers || sandbox.is_restoring())
    };
    if !needs_rollback() {
        return;
    }
    let Ok(_gate) = sandbox.gate.try_write() else {
        parts.cleanup_pending.fetch_or(!sandbox.creation.is_in_progress(), Ordering::Relaxed);
        return;
    };
    if needs_rollback() {
        warn(&format!("pod {}", sandbox.id()), teardown(parts, sandbox).await);
    }
}

/// Returns the ids of the sandboxes that have a network namespace.
fn networked(parts: &Parts) -> HashSet<String> {
    let has_namespace = |sandbox: &Arc<Sandbox>| {
        sandbox.config().network == SharedMode::Pod && sandbox.record().phase != SandboxPhase::Stopped
    };
    let sandboxes = parts.registry.sandboxes();
    sandboxes.iter().filter(|sandbox| has_namespace(sandbox)).map(|sandbox| sandbox.id().to_string()).collect()
}

async fn remove_pins(parts: &Arc<Parts>) {
    let task_parts = Arc::clone(parts);
    let outcome = blocking(move || {
        let internal = |e: netns::Error| Error::internal(e.to_string());
        let pinned = task_parts.node.pins.list().map_err(internal)?;
        let owners = networked(&task_parts);
        for name in pinned.into_iter().filter(|name| !owners.contains(name)) {
            task_parts.node.pins.unpin(&name).map_err(internal)?;
        }
        Ok(())
    });
    warn("pins of network namespaces", outcome.await);
    let task_parts = Arc::clone(parts);
    let outcome = blocking(move || {
        let Some(pins) = &task_parts.node.namespace_pins else { return Ok(()) };
        // Listed first: a pod that is created afterwards is not among them.
        let pinned = pins.pods()?;
        let is_alive = |sandbox: &Arc<Sandbox>| sandbox.record().phase != SandboxPhase::Stopped;
        let sandboxes = task_parts.registry.sandboxes();
        let alive: HashSet<&str> =
            sandboxes.iter().filter(|sandbox| is_alive(sandbox)).map(|sandbox| sandbox.id().as_str()).collect();
        pinned.iter().filter(|pod| !alive.contains(pod.as_str())).for_each(|pod| pins.unpin(pod));
        Ok(())
    });
    warn("pins of namespaces", outcome.await);
}

async fn remove_attachments(parts: &Arc<Parts>) {
    let outcome = parts.node.network.reconcile(&networked(parts)).await;
    warn("network attachments", outcome.map_err(|e| Error::internal(e.to_string())));
}

async fn remove_snapshots(parts: &Arc<Parts>) {
    if parts.layer_sweep_running.swap(true, Ordering::AcqRel) {
        // The disk has not completed the previous sweep.
        return;
    }
    let sweep = Sweep(Arc::clone(parts));
    let outcome = parts.node.images.disk().run_long(move || {
        let parts = &sweep.0;
        let snapshots = parts.node.images.snapshots();
        let owners: HashSet<String> =
            parts.registry.containers().iter().map(|container| container.id().to_string()).collect();
        for key in snapshots.into_iter().filter(|key| !owners.contains(key)) {
            parts.node.images.discard(&key)?;
        }
        Ok::<_, Error>(())
    });
    match tokio::time::timeout(LAYERS_TIMEOUT, outcome).await {
        Ok(outcome) => warn("writable layers", outcome),
        Err(_) => tracing::warn!(
            "remove writable layers without an owner: the disk has not answered for {} s",
            LAYERS_TIMEOUT.as_secs()
        ),
    }
}

/// Removes compiled code of modules whose images were removed.
async fn remove_compiled_code(parts: &Arc<Parts>) {
    let Some(wasm) = parts.node.handlers.wasm().cloned() else { return };
    let node = Arc::clone(&parts.node);
    warn("compiled code", blocking(move || wasm.remove_unused(&node.images)).await);
}

/// Guard of a sweep of writable layers, dropped when the sweep ends or will never run.
struct Sweep(Arc<Parts>);

impl Drop for Sweep {
    fn drop(&mut self) {
        self.0.layer_sweep_running.store(false, Ordering::Release);
    }
}

async fn release_keys(parts: &Arc<Parts>) {
    let keys = parts.monitor.custody().keys();
    let sandboxes = parts.registry.sandboxes();
    let running = sandboxes.iter().filter(|sandbox| sandbox.record().phase != SandboxPhase::Stopped);
    let keys_of = |sandbox: &Arc<Sandbox>| [SharedResource::key(sandbox.id()), shim_mounts::key(sandbox.id())];
    let owned: HashSet<String> = running.flat_map(keys_of).collect();
    for key in keys.iter().filter(|key| !owned.contains(*key)) {
        warn(key, parts.monitor.release(key).await);
    }
}
