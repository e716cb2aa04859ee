//! Lists of sampled values, which are encoded when there are new samples.
//!
//! A pod has about fifty metrics, which take 10 KB; a thousand pods have 10 MB, and encoding them takes longer than a
//! response may take. So while clients request a list, a task encodes it after each round of samples, and requests only
//! copy it. Small nodes do not sample in rounds: there each request encodes its own samples, within a millisecond.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use cri_proto::encoded::Row;
use pod::{ContainerStats, Engine, SandboxStats, Validity};
use prost::Message;
use tokio::sync::Notify;

use super::{
    RowCaches, Rows, field,
    field::{container_attributes, nested, sandbox_attributes},
    list_cache::ListCache,
    root,
    row_cache::RowCache,
};
use crate::status::{Filesystem, sandbox_metrics, usage_of_container, usage_of_sandbox};

/// A list that was not requested for this long is dropped.
const QUIET: Duration = Duration::from_secs(120);
/// How often the task checks whether lists are still requested.
const CHECK: Duration = Duration::from_secs(30);
/// After this time the free space and inodes are queried again.
const FILESYSTEM: Duration = Duration::from_secs(5);
/// How long a list waits for the file system's statistics; if the disk does not respond in time, the previous values
/// are used.
const QUERY_TIMEOUT: Duration = Duration::from_millis(200);

/// The sampled lists and what their rows are made of.
#[derive(Default)]
pub(super) struct SampledLists {
    /// The field `attributes` of `ContainerStats`, which never changes, by container.
    container_attributes: RowCache<(), Vec<u8>>,
    /// The field `attributes` of `PodSandboxStats`, by pod.
    sandbox_attributes: RowCache<(), Vec<u8>>,
    /// Metrics by pod; the key is a hash of the times of its samples.
    metrics_rows: RowCache<u64, Row>,
    containers: SampledList,
    sandboxes: SampledList,
    metrics: SampledList,
    filesystem: Arc<LastFilesystem>,
    preparing: AtomicBool,
}

/// The last known statistics of the file system with the writable layers.
#[derive(Default)]
struct LastFilesystem {
    known: Mutex<Option<(Instant, Arc<Filesystem>)>>,
    /// Whether a query is running on the disk's thread.
    querying: AtomicBool,
    updated: Notify,
}

/// A list, and when it was last requested.
#[derive(Default)]
struct SampledList {
    cache: ListCache<Validity>,
    requested_at: Mutex<Option<Instant>>,
}

impl SampledList {
    /// Records a request for the list, and returns the rows if they are current.
    fn request(&self, engine: &Engine) -> Option<Rows> {
        *self.requested_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.cache.get(|validity| engine.is_valid(validity))
    }

    fn set(&self, validity: Option<Validity>, rows: Rows) -> Rows {
        self.cache.set(validity, &rows);
        rows
    }

    fn is_quiet(&self) -> bool {
        let requested_at = self.requested_at.lock().unwrap_or_else(PoisonError::into_inner);
        requested_at.is_none_or(|at| at.elapsed() > QUIET)
    }
}

impl SampledLists {
    pub(super) async fn container_stats(&self, caches: &Arc<RowCaches>) -> Rows {
        if let Some(rows) = self.containers.request(&caches.engine) {
            return rows;
        }
        self.prepare(caches);
        let all = caches.engine.all_container_stats().await;
        self.containers.set(all.validity, self.encode_containers(&all.stats, &root(&caches.engine)))
    }

    pub(super) async fn sandbox_stats(&self, caches: &Arc<RowCaches>) -> Rows {
        if let Some(rows) = self.sandboxes.request(&caches.engine) {
            return rows;
        }
        self.prepare(caches);
        let all = caches.engine.all_sandbox_stats().await;
        self.sandboxes.set(all.validity, self.encode_sandboxes(&all.stats, &root(&caches.engine)))
    }

    pub(super) async fn metrics(&self, caches: &Arc<RowCaches>) -> Rows {
        if let Some(rows) = self.metrics.request(&caches.engine) {
            return rows;
        }
        self.prepare(caches);
        self.query_filesystem(&caches.engine).await;
        let all = caches.engine.all_sandbox_stats().await;
        self.metrics.set(all.validity, self.encode_metrics(&all.stats))
    }

    pub(super) fn encode_containers(&self, all: &[Arc<ContainerStats>], root: &str) -> Rows {
        let (mut attributes, mut usage) = (self.container_attributes.open(), Vec::new());
        let mut row = |stats: &ContainerStats| {
            usage.clear();
            usage_of_container(stats, root).encode_raw(&mut usage);
            Row::from_encoded(&[
                attributes.get(stats.container.id.as_str(), (), || container_attributes(stats)),
                &usage,
            ])
        };
        all.iter().map(|stats| row(stats)).collect()
    }

    pub(super) fn encode_sandboxes(&self, all: &[SandboxStats], root: &str) -> Rows {
        let (mut pods, mut containers) = (self.sandbox_attributes.open(), self.container_attributes.open());
        let row = |stats: &SandboxStats| {
            let mut linux = usage_of_sandbox(stats).encode_to_vec();
            for container in &stats.containers {
                let attributes =
                    containers.get(container.container.id.as_str(), (), || container_attributes(container));
                let usage = usage_of_container(container, root).encode_to_vec();
                nested(field::CONTAINERS, &[attributes, &usage], &mut linux);
            }
            let mut whole = Vec::with_capacity(linux.len() + 8);
            nested(field::LINUX, &[&linux], &mut whole);
            Row::from_encoded(&[pods.get(stats.sample.sandbox.id.as_str(), (), || sandbox_attributes(stats)), &whole])
        };
        all.iter().map(row).collect()
    }

    fn encode_metrics(&self, all: &[SandboxStats]) -> Rows {
        let filesystem = self.filesystem.get();
        let mut cache = self.metrics_rows.open();
        let mut row = |stats: &SandboxStats| {
            let row = || sandbox_metrics(stats, &filesystem);
            cache.get(stats.sample.sandbox.id.as_str(), times(stats), row).clone()
        };
        all.iter().map(&mut row).collect()
    }

    /// Refreshes [`Self::filesystem`] if its disk responds. A disk that does not respond blocks one thread, and each
    /// caller only for [`QUERY_TIMEOUT`].
    async fn query_filesystem(&self, engine: &Engine) {
        let last = Arc::clone(&self.filesystem);
        if last.is_fresh() {
            return;
        }
        let updated = last.updated.notified();
        tokio::pin!(updated);
        updated.as_mut().enable();
        if last.querying.swap(true, Ordering::AcqRel) {
            let _ = tokio::time::timeout(QUERY_TIMEOUT, updated).await;
            return;
        }
        let (images, guard) = (engine.images().clone(), QueryGuard(Arc::clone(&last)));
        let disk = images.disk().clone();
        // Not `run`: its time limit is for callers that depend on the disk, and this one falls back to cached values.
        let query = disk.run_long(move || {
            guard.0.set(Filesystem::of(images.root()));
            Ok::<_, pod::Error>(())
        });
        // An error counts as a disk that does not respond.
        let _ = tokio::time::timeout(QUERY_TIMEOUT, query).await;
    }

    /// Starts the task that encodes the lists after each round of samples.
    fn prepare(&self, caches: &Arc<RowCaches>) {
        if !self.preparing.swap(true, Ordering::Relaxed) {
            tokio::spawn(after_each_round(Arc::downgrade(caches)));
        }
    }

    /// Encodes the lists that were requested recently.
    fn encode_requested(&self, engine: &Engine) {
        if !self.containers.is_quiet() {
            let all = engine.last_container_stats();
            self.containers.set(all.validity, self.encode_containers(&all.stats, &root(engine)));
        }
        if self.sandboxes.is_quiet() && self.metrics.is_quiet() {
            return;
        }
        let all = engine.last_sandbox_stats();
        if !self.sandboxes.is_quiet() {
            self.sandboxes.set(all.validity, self.encode_sandboxes(&all.stats, &root(engine)));
        }
        if !self.metrics.is_quiet() {
            self.metrics.set(all.validity, self.encode_metrics(&all.stats));
        }
    }

    /// Drops lists that are not requested any longer. Returns `false` if no list is left.
    fn tidy(&self) -> bool {
        let all = [&self.containers, &self.sandboxes, &self.metrics];
        all.iter().filter(|list| list.is_quiet()).for_each(|list| list.cache.clear());
        if self.metrics.is_quiet() {
            self.metrics_rows.clear();
        }
        all.iter().any(|list| !list.is_quiet())
    }
}

impl LastFilesystem {
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Arc<Filesystem>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_fresh(&self) -> bool {
        self.lock().as_ref().is_some_and(|(at, _)| at.elapsed() < FILESYSTEM)
    }

    fn get(&self) -> Arc<Filesystem> {
        self.lock().as_ref().map_or_else(Arc::default, |(_, filesystem)| Arc::clone(filesystem))
    }

    fn set(&self, filesystem: Filesystem) {
        *self.lock() = Some((Instant::now(), Arc::new(filesystem)));
    }
}

/// A running query; dropping it wakes the tasks that wait for it.
struct QueryGuard(Arc<LastFilesystem>);

impl Drop for QueryGuard {
    fn drop(&mut self) {
        self.0.querying.store(false, Ordering::Release);
        self.0.updated.notify_waiters();
    }
}

/// Returns a hash of the times of all samples, which differs between sets of samples.
fn times(stats: &SandboxStats) -> u64 {
    let mix = |sum: u64, at: u64| sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(at);
    stats.containers.iter().fold(stats.sample.at, |sum, container| mix(sum, container.at))
}

async fn after_each_round(caches: Weak<RowCaches>) {
    let Some(mut rounds) = caches.upgrade().map(|caches| caches.engine.stats_rounds()) else { return };
    loop {
        let round = tokio::time::timeout(CHECK, rounds.changed()).await;
        let Some(caches) = caches.upgrade() else { return };
        if !caches.sampled.tidy() || matches!(round, Ok(Err(_))) {
            caches.sampled.preparing.store(false, Ordering::Relaxed);
            return;
        }
        if round.is_ok() {
            if !caches.sampled.metrics.is_quiet() {
                caches.sampled.query_filesystem(&caches.engine).await;
            }
            // If this panics, the next request encodes the lists.
            let _ = offload::blocking(move || caches.sampled.encode_requested(&caches.engine)).await;
        }
    }
}
