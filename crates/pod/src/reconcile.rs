//! Removing what no one owns: after a start, and from time to time.
//!
//! The kernel's side is listed first and the owners are asked after. An owner is on record before anything of it is
//! made, and ids are never given twice: what has no owner then, has none, whatever is made meanwhile. So nobody waits
//! for this, and no plugin that sleeps for one pod keeps it from the others.

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
    container::{Container, ContainerPhase, remove::take_away},
    engine::{Inner, blocking},
    orphans::Orphans,
    sandbox::{Sandbox, SandboxPhase, Shared, teardown::teardown},
};

const EVERY: Duration = Duration::from_secs(60);
/// How soon what could not be undone is tried again at first, and when it failed often.
const SOON: Duration = Duration::from_secs(2);
const SELDOM: Duration = Duration::from_secs(16);
/// How many are undone at once: a plugin that sleeps for one keeps none of the others.
const AT_ONCE: usize = 8;
/// How long the others wait for a disk that does not remove writable layers.
const LAYERS: Duration = Duration::from_secs(10);
/// How long a node without pods keeps what pods share.
const IDLE: Duration = Duration::from_secs(1);

/// In the background, for as long as the engine lives.
/// Tells when the first time is over.
pub(crate) async fn every_minute(engine: Weak<Inner>, first: oneshot::Sender<()>) {
    let mut orphans = Orphans::default();
    if let Some(engine) = engine.upgrade() {
        once(&engine).await;
    }
    let _ = first.send(());
    let mut next = Instant::now() + EVERY;
    let mut soon = SOON;
    loop {
        tokio::time::sleep(soon.min(next.saturating_duration_since(Instant::now()))).await;
        let Some(engine) = engine.upgrade() else { return };
        if Instant::now() >= next {
            orphans.look();
            once(&engine).await;
            next = Instant::now() + EVERY;
        } else {
            if engine.unfinished.load(Ordering::Relaxed) {
                unfinished(&engine).await;
            }
            if engine.network.is_unfinished() {
                networks(&engine).await;
            }
        }
        // A plugin that always fails is not asked every moment.
        soon = if is_unfinished(&engine) { (2 * soon).min(SELDOM) } else { SOON };
    }
}

fn is_unfinished(engine: &Inner) -> bool {
    engine.network.is_unfinished() || engine.unfinished.load(Ordering::Relaxed)
}

/// Once.
pub(crate) async fn once(engine: &Arc<Inner>) {
    unfinished(engine).await;
    pins(engine).await;
    networks(engine).await;
    snapshots(engine).await;
    keys(engine).await;
    if let Ok(_alone) = engine.making.try_write() {
        cgroup_parent(engine).await;
    }
}

/// After the last pod went. Not at once: the next one would only have to make again what is removed here.
pub(crate) fn when_idle(engine: &Arc<Inner>) {
    let engine = Arc::downgrade(engine);
    tokio::spawn(async move {
        tokio::time::sleep(IDLE).await;
        let Some(engine) = engine.upgrade() else { return };
        let Ok(_alone) = engine.making.try_write() else { return };
        cgroup_parent(&engine).await;
    });
}

/// The group above pods that name none, while there are no pods.
pub(crate) async fn cgroup_parent(engine: &Arc<Inner>) {
    if !engine.sandboxes().is_empty() {
        return;
    }
    let of = Arc::clone(engine);
    let outcome = blocking(move || {
        let parent = GroupPath::parse(&of.config.default_cgroup_parent).and_then(|path| path.join("pod"));
        of.trees.remove_empty_parents(&parent.map_err(|e| Error::internal(e.to_string()))?, None);
        Ok(())
    });
    warn("the pods' cgroup", outcome.await);
}

fn warn(what: &str, outcome: Result<(), Error>) {
    if let Err(error) = outcome {
        tracing::warn!("remove {what}, which nobody owns: {error}");
    }
}

/// Objects whose operation failed and could not undo all.
async fn unfinished(engine: &Arc<Inner>) {
    engine.unfinished.store(false, Ordering::Relaxed);
    let containers = stream::iter(engine.containers());
    containers
        .for_each_concurrent(AT_ONCE, |container| async move { unfinished_container(engine, &container).await })
        .await;
    let sandboxes = stream::iter(engine.sandboxes());
    sandboxes.for_each_concurrent(AT_ONCE, |sandbox| async move { unfinished_sandbox(engine, &sandbox).await }).await;
}

async fn unfinished_container(engine: &Arc<Inner>, container: &Arc<Container>) {
    let is_early = || container.record().phase == ContainerPhase::Creating;
    if !is_early() {
        return;
    }
    let Ok(_alone) = container.busy.try_lock() else {
        // One that is being made reports by itself that it could not be undone.
        engine.unfinished.fetch_or(!container.making.is_under_way(), Ordering::Relaxed);
        return;
    };
    // Its operation may have succeeded since.
    if is_early() {
        warn(&format!("container {}", container.id()), take_away(engine, container).await);
    }
}

async fn unfinished_sandbox(engine: &Arc<Inner>, sandbox: &Arc<Sandbox>) {
    let is_left = || {
        let record = sandbox.record();
        record.phase.is_early() && record.broken.is_none() && engine.containers_of(sandbox.id()).is_empty()
    };
    if !is_left() {
        return;
    }
    let Ok(_alone) = sandbox.gate.try_write() else {
        engine.unfinished.fetch_or(!sandbox.making.is_under_way(), Ordering::Relaxed);
        return;
    };
    if is_left() {
        warn(&format!("pod {}", sandbox.id()), teardown(engine, sandbox).await);
    }
}

/// Sandboxes that have a network namespace.
fn networked(engine: &Inner) -> HashSet<String> {
    let own = |sandbox: &Arc<Sandbox>| {
        sandbox.config().network == SharedMode::Pod && sandbox.record().phase != SandboxPhase::Stopped
    };
    engine.sandboxes().iter().filter(|sandbox| own(sandbox)).map(|sandbox| sandbox.id().to_owned()).collect()
}

async fn pins(engine: &Arc<Inner>) {
    let of = Arc::clone(engine);
    let outcome = blocking(move || {
        let told = |e: netns::Error| Error::internal(e.to_string());
        let pinned = of.pins.list().map_err(told)?;
        let living = networked(&of);
        for name in pinned.into_iter().filter(|name| !living.contains(name)) {
            of.pins.unpin(&name).map_err(told)?;
        }
        Ok(())
    });
    warn("pins of network namespaces", outcome.await);
}

async fn networks(engine: &Arc<Inner>) {
    let outcome = engine.network.reconcile(&networked(engine)).await;
    warn("network attachments", outcome.map_err(|e| Error::internal(e.to_string())));
}

async fn snapshots(engine: &Arc<Inner>) {
    if engine.sweeps.swap(true, Ordering::AcqRel) {
        // The disk has not answered the one before.
        return;
    }
    let of = Sweep(Arc::clone(engine));
    let outcome = engine.images.disk().run_long(move || {
        let of = &of.0;
        let there = of.images.snapshots();
        let owners: HashSet<String> = of.containers().iter().map(|container| container.id().to_owned()).collect();
        for key in there.into_iter().filter(|key| !owners.contains(key)) {
            of.images.discard(&key)?;
        }
        Ok::<_, Error>(())
    });
    match tokio::time::timeout(LAYERS, outcome).await {
        Ok(outcome) => warn("writable layers", outcome),
        Err(_) => tracing::warn!(
            "remove writable layers, which nobody owns: the disk has not answered for {} s",
            LAYERS.as_secs()
        ),
    }
}

/// Removing writable layers, until it ended or nobody will begin it.
struct Sweep(Arc<Inner>);

impl Drop for Sweep {
    fn drop(&mut self) {
        self.0.sweeps.store(false, Ordering::Release);
    }
}

async fn keys(engine: &Arc<Inner>) {
    let kept = engine.monitor.custody().keys();
    let sandboxes = engine.sandboxes();
    let living = sandboxes.iter().filter(|sandbox| sandbox.record().phase != SandboxPhase::Stopped);
    let living: HashSet<String> = living.map(|sandbox| Shared::key(sandbox.id())).collect();
    for key in kept.iter().filter(|key| !living.contains(*key)) {
        warn(key, engine.monitor.release(key).await);
    }
}
