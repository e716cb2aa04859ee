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

use cgroup::GroupPath;
use futures_util::{StreamExt, stream};
use tokio::sync::oneshot;

use crate::{
    Error, SharedMode,
    container::{Container, ContainerPhase, remove::remove_locked},
    engine::{Inner, blocking},
    orphans::Orphans,
    sandbox::{Sandbox, SandboxPhase, SharedResource, teardown::teardown},
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
/// How long a node without pods keeps what pods share.
const IDLE: Duration = Duration::from_secs(1);

/// Reconciles periodically for as long as the engine exists. Sends `first` after the first pass.
pub(crate) async fn run(engine: Weak<Inner>, first: oneshot::Sender<()>) {
    let mut orphans = Orphans::default();
    if let Some(engine) = engine.upgrade() {
        once(&engine).await;
    }
    let _ = first.send(());
    let mut next = Instant::now() + INTERVAL;
    let mut retry = RETRY_MIN;
    loop {
        tokio::time::sleep(retry.min(next.saturating_duration_since(Instant::now()))).await;
        let Some(engine) = engine.upgrade() else { return };
        if Instant::now() >= next {
            orphans.scan();
            once(&engine).await;
            next = Instant::now() + INTERVAL;
        } else {
            if engine.cleanup_pending.load(Ordering::Relaxed) {
                roll_back_unfinished(&engine).await;
            }
            if engine.network.is_unfinished() {
                remove_attachments(&engine).await;
            }
        }
        // The delay grows, so that a plugin that always fails is not called all the time.
        retry = if is_unfinished(&engine) { (2 * retry).min(RETRY_MAX) } else { RETRY_MIN };
    }
}

fn is_unfinished(engine: &Inner) -> bool {
    engine.network.is_unfinished() || engine.cleanup_pending.load(Ordering::Relaxed)
}

/// Runs one pass.
pub(crate) async fn once(engine: &Arc<Inner>) {
    roll_back_unfinished(engine).await;
    remove_pins(engine).await;
    remove_attachments(engine).await;
    remove_snapshots(engine).await;
    release_keys(engine).await;
    if let Ok(_creation_lock) = engine.creation_lock.try_write() {
        remove_cgroup_parent(engine).await;
    }
}

/// Removes the pods' parent cgroup some time after the last pod was removed. Not at once: the next pod would have to
/// create it again.
pub(crate) fn when_idle(engine: &Arc<Inner>) {
    let engine = Arc::downgrade(engine);
    tokio::spawn(async move {
        tokio::time::sleep(IDLE).await;
        let Some(engine) = engine.upgrade() else { return };
        let Ok(_creation_lock) = engine.creation_lock.try_write() else { return };
        remove_cgroup_parent(&engine).await;
    });
}

/// Removes the parent cgroup of pods that name none, if no pod exists.
pub(crate) async fn remove_cgroup_parent(engine: &Arc<Inner>) {
    if !engine.sandboxes().is_empty() {
        return;
    }
    let task_engine = Arc::clone(engine);
    let outcome = blocking(move || {
        let parent = GroupPath::parse(&task_engine.config.default_cgroup_parent).and_then(|path| path.join("pod"));
        task_engine.trees.remove_empty_parents(&parent.map_err(|e| Error::internal(e.to_string()))?, None);
        Ok(())
    });
    warn("the pods' cgroup", outcome.await);
}

fn warn(object: &str, outcome: Result<(), Error>) {
    if let Err(error) = outcome {
        tracing::warn!("remove {object} without an owner: {error}");
    }
}

/// Rolls back objects whose creation failed and could not be rolled back completely.
async fn roll_back_unfinished(engine: &Arc<Inner>) {
    engine.cleanup_pending.store(false, Ordering::Relaxed);
    let containers = stream::iter(engine.containers());
    containers
        .for_each_concurrent(
            CONCURRENT_ROLLBACKS,
            |container| async move { roll_back_container(engine, &container).await },
        )
        .await;
    let sandboxes = stream::iter(engine.sandboxes());
    sandboxes
        .for_each_concurrent(CONCURRENT_ROLLBACKS, |sandbox| async move { roll_back_sandbox(engine, &sandbox).await })
        .await;
}

async fn roll_back_container(engine: &Arc<Inner>, container: &Arc<Container>) {
    let is_early = || container.record().phase == ContainerPhase::Creating;
    if !is_early() {
        return;
    }
    let Ok(_busy) = container.busy.try_lock() else {
        // An operation in progress sets the flag itself if its rollback fails.
        engine.cleanup_pending.fetch_or(!container.creation.is_in_progress(), Ordering::Relaxed);
        return;
    };
    // The operation may have succeeded in the meantime.
    if is_early() {
        warn(&format!("container {}", container.id()), remove_locked(engine, container).await);
    }
}

async fn roll_back_sandbox(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) {
    let needs_rollback = || {
        let record = sandbox.record();
        record.phase.is_early() && record.broken.is_none() && engine.containers_of(sandbox.id()).is_empty()
    };
    if !needs_rollback() {
        return;
    }
    let Ok(_gate) = sandbox.gate.try_write() else {
        engine.cleanup_pending.fetch_or(!sandbox.creation.is_in_progress(), Ordering::Relaxed);
        return;
    };
    if needs_rollback() {
        warn(&format!("pod {}", sandbox.id()), teardown(engine, sandbox).await);
    }
}

/// Returns the ids of the sandboxes that have a network namespace.
fn networked(engine: &Inner) -> HashSet<String> {
    let has_namespace = |sandbox: &Arc<Sandbox>| {
        sandbox.config().network == SharedMode::Pod && sandbox.record().phase != SandboxPhase::Stopped
    };
    let sandboxes = engine.sandboxes();
    sandboxes.iter().filter(|sandbox| has_namespace(sandbox)).map(|sandbox| sandbox.id().to_owned()).collect()
}

async fn remove_pins(engine: &Arc<Inner>) {
    let task_engine = Arc::clone(engine);
    let outcome = blocking(move || {
        let internal = |e: netns::Error| Error::internal(e.to_string());
        let pinned = task_engine.pins.list().map_err(internal)?;
        let owners = networked(&task_engine);
        for name in pinned.into_iter().filter(|name| !owners.contains(name)) {
            task_engine.pins.unpin(&name).map_err(internal)?;
        }
        Ok(())
    });
    warn("pins of network namespaces", outcome.await);
}

async fn remove_attachments(engine: &Arc<Inner>) {
    let outcome = engine.network.reconcile(&networked(engine)).await;
    warn("network attachments", outcome.map_err(|e| Error::internal(e.to_string())));
}

async fn remove_snapshots(engine: &Arc<Inner>) {
    if engine.layer_sweep_running.swap(true, Ordering::AcqRel) {
        // The disk has not completed the previous sweep.
        return;
    }
    let sweep = Sweep(Arc::clone(engine));
    let outcome = engine.images.disk().run_long(move || {
        let engine = &sweep.0;
        let snapshots = engine.images.snapshots();
        let owners: HashSet<String> = engine.containers().iter().map(|container| container.id().to_owned()).collect();
        for key in snapshots.into_iter().filter(|key| !owners.contains(key)) {
            engine.images.discard(&key)?;
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

/// Guard of a sweep of writable layers, dropped when the sweep ends or will never run.
struct Sweep(Arc<Inner>);

impl Drop for Sweep {
    fn drop(&mut self) {
        self.0.layer_sweep_running.store(false, Ordering::Release);
    }
}

async fn release_keys(engine: &Arc<Inner>) {
    let keys = engine.monitor.custody().keys();
    let sandboxes = engine.sandboxes();
    let running = sandboxes.iter().filter(|sandbox| sandbox.record().phase != SandboxPhase::Stopped);
    let owned: HashSet<String> = running.map(|sandbox| SharedResource::key(sandbox.id())).collect();
    for key in keys.iter().filter(|key| !owned.contains(*key)) {
        warn(key, engine.monitor.release(key).await);
    }
}
