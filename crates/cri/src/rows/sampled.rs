//! Rows that are made of samples, encoded when there are new ones.
//!
//! A pod has some fifty metrics, ten kilobytes; a thousand pods ten megabytes, which take longer to encode than an
//! answer may take. So while somebody asks for a list, a task makes it anew after each round of samples, and an answer
//! copies. Small nodes have no rounds: there whoever asks encodes what was measured for it, within a millisecond.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use cri_proto::encoded::Row;
use pod::{ContainerStats, Hold, SandboxStats};
use prost::Message;
use tokio::sync::Notify;

use super::{
    Rows, field,
    field::{container_attributes, nested, sandbox_attributes},
    kept::Kept,
    root,
    whole::Whole,
};
use crate::{
    answer::{Shared, State},
    status::{Filesystem, sandbox_metrics, usage_of_container, usage_of_sandbox},
};

/// Nothing is kept when nobody asked for so long.
const QUIET: Duration = Duration::from_secs(120);
/// How often it is looked whether anybody asked.
const LOOK: Duration = Duration::from_secs(30);
/// Free space and inodes are asked for again after this.
const FILESYSTEM: Duration = Duration::from_secs(5);
/// As long a list waits for a disk that does not tell them; what was known before is given then.
const ASK: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Default)]
pub(super) struct Sampled {
    /// The field `attributes` of `ContainerStats`, which never changes.
    of_containers: Kept<(), Vec<u8>>,
    /// The field `attributes` of `PodSandboxStats`.
    of_sandboxes: Kept<(), Vec<u8>>,
    /// By the times of the pod's samples.
    metrics_of: Kept<u64, Row>,
    containers: Wanted,
    sandboxes: Wanted,
    metrics: Wanted,
    filesystem: Arc<LastFilesystem>,
    preparing: AtomicBool,
}

/// What was known last of the file system of writable layers.
#[derive(Default)]
struct LastFilesystem {
    known: Mutex<Option<(Instant, Arc<Filesystem>)>>,
    /// Its disk is asked, and has not answered.
    asked: AtomicBool,
    answered: Notify,
}

/// A list, and when it was asked for.
#[derive(Default)]
struct Wanted {
    whole: Whole<Hold>,
    asked: Mutex<Option<Instant>>,
}

impl Wanted {
    /// What was prepared for it.
    fn ask(&self, state: &State) -> Option<Rows> {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.whole.get(|hold| state.engine.holds(hold))
    }

    fn keep(&self, hold: Option<Hold>, rows: Rows) -> Rows {
        self.whole.keep(hold, &rows);
        rows
    }

    fn is_quiet(&self) -> bool {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.is_none_or(|asked| asked.elapsed() > QUIET)
    }
}

impl Sampled {
    pub(super) async fn container_stats(&self, state: &Shared) -> Rows {
        if let Some(rows) = self.containers.ask(state) {
            return rows;
        }
        self.prepare(state);
        let all = state.engine.all_container_stats().await;
        self.containers.keep(all.hold, self.encode_containers(&all.stats, &root(state)))
    }

    pub(super) async fn sandbox_stats(&self, state: &Shared) -> Rows {
        if let Some(rows) = self.sandboxes.ask(state) {
            return rows;
        }
        self.prepare(state);
        let all = state.engine.all_sandbox_stats().await;
        self.sandboxes.keep(all.hold, self.encode_sandboxes(&all.stats, &root(state)))
    }

    pub(super) async fn metrics(&self, state: &Shared) -> Rows {
        if let Some(rows) = self.metrics.ask(state) {
            return rows;
        }
        self.prepare(state);
        self.ask_filesystem(state).await;
        let all = state.engine.all_sandbox_stats().await;
        self.metrics.keep(all.hold, self.encode_metrics(&all.stats))
    }

    pub(super) fn encode_containers(&self, all: &[Arc<ContainerStats>], root: &str) -> Rows {
        let (mut kept, mut usage) = (self.of_containers.open(), Vec::new());
        let mut row = |stats: &ContainerStats| {
            usage.clear();
            usage_of_container(stats, root).encode_raw(&mut usage);
            Row::of_encoded(&[kept.get(&stats.container.id, (), || container_attributes(stats)), &usage])
        };
        all.iter().map(|stats| row(stats)).collect()
    }

    pub(super) fn encode_sandboxes(&self, all: &[SandboxStats], root: &str) -> Rows {
        let (mut pods, mut containers) = (self.of_sandboxes.open(), self.of_containers.open());
        let row = |stats: &SandboxStats| {
            let mut linux = usage_of_sandbox(stats).encode_to_vec();
            for container in &stats.containers {
                let attributes = containers.get(&container.container.id, (), || container_attributes(container));
                let usage = usage_of_container(container, root).encode_to_vec();
                nested(field::CONTAINERS, &[attributes, &usage], &mut linux);
            }
            let mut whole = Vec::with_capacity(linux.len() + 8);
            nested(field::LINUX, &[&linux], &mut whole);
            Row::of_encoded(&[pods.get(&stats.sample.sandbox.id, (), || sandbox_attributes(stats)), &whole])
        };
        all.iter().map(row).collect()
    }

    fn encode_metrics(&self, all: &[SandboxStats]) -> Rows {
        let filesystem = self.filesystem.get();
        let mut kept = self.metrics_of.open();
        let mut row = |stats: &SandboxStats| {
            let row = || sandbox_metrics(stats, &filesystem);
            kept.get(&stats.sample.sandbox.id, times(stats), row).clone()
        };
        all.iter().map(&mut row).collect()
    }

    /// Has [`Self::filesystem`] be fresh, where its disk answers: one that does not holds one thread, and nobody for
    /// long.
    async fn ask_filesystem(&self, state: &State) {
        let last = Arc::clone(&self.filesystem);
        if last.is_fresh() {
            return;
        }
        let answered = last.answered.notified();
        tokio::pin!(answered);
        answered.as_mut().enable();
        if last.asked.swap(true, Ordering::AcqRel) {
            let _ = tokio::time::timeout(ASK, answered).await;
            return;
        }
        let (images, asked) = (state.engine.images().clone(), Asked(Arc::clone(&last)));
        let disk = images.disk().clone();
        // Not `run`: its limit is for a disk that answers nothing, and this answers from memory.
        let ask = disk.run_long(move || {
            asked.0.set(Filesystem::of(images.root()));
            Ok::<_, pod::Error>(())
        });
        // An error is a disk that is silent, too.
        let _ = tokio::time::timeout(ASK, ask).await;
    }

    /// Has lists made after each round from now on.
    fn prepare(&self, state: &Shared) {
        if !self.preparing.swap(true, Ordering::Relaxed) {
            tokio::spawn(after_each_round(Arc::downgrade(state)));
        }
    }

    /// Makes those that were asked for of late anew.
    fn make(&self, state: &Shared) {
        if !self.containers.is_quiet() {
            let all = state.engine.last_container_stats();
            self.containers.keep(all.hold, self.encode_containers(&all.stats, &root(state)));
        }
        if self.sandboxes.is_quiet() && self.metrics.is_quiet() {
            return;
        }
        let all = state.engine.last_sandbox_stats();
        if !self.sandboxes.is_quiet() {
            self.sandboxes.keep(all.hold, self.encode_sandboxes(&all.stats, &root(state)));
        }
        if !self.metrics.is_quiet() {
            self.metrics.keep(all.hold, self.encode_metrics(&all.stats));
        }
    }

    /// Forgets what nobody asks for any more; `false`: that is everything.
    fn tidy(&self) -> bool {
        let all = [&self.containers, &self.sandboxes, &self.metrics];
        all.iter().filter(|list| list.is_quiet()).for_each(|list| list.whole.clear());
        if self.metrics.is_quiet() {
            self.metrics_of.clear();
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

/// The question, until it is answered or nobody asks it any more.
struct Asked(Arc<LastFilesystem>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.asked.store(false, Ordering::Release);
        self.0.answered.notify_waiters();
    }
}

/// Tells one set of samples from the next: each has a time of its own.
fn times(stats: &SandboxStats) -> u64 {
    let mix = |sum: u64, at: u64| sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(at);
    stats.containers.iter().fold(stats.sample.at, |sum, container| mix(sum, container.at))
}

async fn after_each_round(state: Weak<State>) {
    let Some(mut rounds) = state.upgrade().map(|state| state.engine.stats_rounds()) else { return };
    loop {
        let round = tokio::time::timeout(LOOK, rounds.changed()).await;
        let Some(state) = state.upgrade() else { return };
        if !state.rows.sampled.tidy() || matches!(round, Ok(Err(_))) {
            state.rows.sampled.preparing.store(false, Ordering::Relaxed);
            return;
        }
        if round.is_ok() {
            if !state.rows.sampled.metrics.is_quiet() {
                state.rows.sampled.ask_filesystem(&state).await;
            }
            // Whoever asks next encodes what this did not.
            let _ = tokio::task::spawn_blocking(move || state.rows.sampled.make(&state)).await;
        }
    }
}
