//! Metrics, encoded when there are new samples.
//!
//! A pod has some fifty of them, ten kilobytes; a thousand pods ten megabytes, which take longer to encode than an answer may
//! take. So while somebody asks, a task encodes them after each round of samples, and an answer copies. Small nodes have no
//! rounds: there they are encoded by whoever asks, within a millisecond.

use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use cri_proto::encoded::Row;
use pod::SandboxStats;

use super::kept::Kept;
use crate::{
    answer::{Shared, State},
    status::{Filesystem, sandbox_metrics},
};

/// Nothing is kept when nobody asked for so long.
const QUIET: Duration = Duration::from_secs(120);
/// How often it is looked whether anybody asked.
const LOOK: Duration = Duration::from_secs(30);
/// Free space and inodes are asked for again after this.
const FILESYSTEM: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Default)]
pub(super) struct Metrics {
    /// Made of the times of the pod's samples.
    rows: Kept<u64, Row>,
    asked: Mutex<Option<Instant>>,
    filesystem: Mutex<Option<(Instant, Arc<Filesystem>)>>,
    encoding: AtomicBool,
}

impl Metrics {
    pub(super) async fn rows(&self, state: &Shared) -> Vec<Row> {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        if !self.encoding.swap(true, Ordering::Relaxed) {
            tokio::spawn(after_each_round(Arc::downgrade(state)));
        }
        self.encode(state, &state.engine.list_sandbox_stats(|_, _| true).await)
    }

    fn encode(&self, state: &State, all: &[SandboxStats]) -> Vec<Row> {
        let filesystem = self.filesystem(state);
        let mut kept = self.rows.open();
        let mut row = |stats: &SandboxStats| {
            let row = || sandbox_metrics(stats, &filesystem);
            kept.get(&stats.sample.sandbox.id, times(stats), row).clone()
        };
        all.iter().map(&mut row).collect()
    }

    fn filesystem(&self, state: &State) -> Arc<Filesystem> {
        let mut known = self.filesystem.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((at, filesystem)) if at.elapsed() < FILESYSTEM => Arc::clone(filesystem),
            _ => {
                let filesystem = Arc::new(Filesystem::of(state.engine.images().root()));
                *known = Some((Instant::now(), Arc::clone(&filesystem)));
                filesystem
            }
        }
    }

    fn is_quiet(&self) -> bool {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.is_none_or(|asked| asked.elapsed() > QUIET)
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
        let metrics = &state.rows.metrics;
        if metrics.is_quiet() || matches!(round, Ok(Err(_))) {
            metrics.rows.clear();
            metrics.encoding.store(false, Ordering::Relaxed);
            return;
        }
        if round.is_ok() {
            let all = state.engine.last_sandbox_stats();
            let work = move || drop(state.rows.metrics.encode(&state, &all));
            // Whoever asks next encodes what this did not.
            let _ = tokio::task::spawn_blocking(work).await;
        }
    }
}
