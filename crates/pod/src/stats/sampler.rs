//! The samples, and who takes them when.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use cgroup::Group;
use tokio::sync::watch;

use super::{
    measure,
    network::Interfaces,
    rate::Rate,
    sample::{ContainerStats, SandboxSample},
};
use crate::{container::Container, engine::Inner, sandbox::Sandbox};

/// Between two rounds of the thread.
const PAUSE: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(10);
/// A round that took long is followed by a pause so many times as long: 2 % of a core.
const REST: u32 = 50;
/// After a request that was answered by samples, the next round comes this soon at the earliest, so that a client that
/// asks twice within a second (`crictl stats`) sees two samples.
const SOON: Duration = Duration::from_millis(500);
/// And after so many times as long as the last round took,
const SOON_REST: u32 = 10;
/// but no later than this: kubelet asks every 10 s, and must find another sample of each object. That holds for rounds
/// of up to 2 s: an object may be measured at the beginning of one round and at the end of the next.
const SOON_MAX: Duration = Duration::from_secs(6);
/// The thread rests when nobody asked for so long.
const QUIET: Duration = Duration::from_secs(120);
/// What is measured while a request waits, at most.
const AT_ONCE: Duration = Duration::from_millis(3);
/// What one object is thought to take before one was measured.
const FIRST_COST: Duration = Duration::from_micros(60);
/// A sample this young is as good as a new one, nanoseconds.
const FRESH: u64 = 200_000_000;
/// No sample older than this is ever told, nanoseconds.
pub(super) const STALE: u64 = 15_000_000_000;

/// A sample, and what the next one needs.
pub(super) struct Known<T> {
    pub(super) sample: Arc<T>,
    /// Of a pod: the cgroup above its containers.
    pub(super) group: Option<Arc<Group>>,
    rate: Rate,
}

#[derive(Default)]
struct Samples {
    containers: HashMap<String, Known<ContainerStats>>,
    sandboxes: HashMap<String, Known<SandboxSample>>,
}

#[derive(Default)]
struct Pace {
    asked: Option<Instant>,
    /// Somebody was answered by samples: a round is welcome.
    wanted: bool,
    running: bool,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    samples: Mutex<Samples>,
    pace: Mutex<Pace>,
    changed: Condvar,
    /// What measuring one object took of late, nanoseconds.
    cost: AtomicU64,
    rounds: watch::Sender<u64>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Sampler(Arc<Shared>);

impl Drop for Sampler {
    fn drop(&mut self) {
        lock(&self.0.pace).ended = true;
        self.0.changed.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a request is about.
pub(super) struct Wanted {
    pub(super) containers: Vec<Arc<Container>>,
    pub(super) sandboxes: Vec<Arc<Sandbox>>,
}

/// What must be measured before the answer.
pub(super) struct Due {
    wanted: Wanted,
    /// Whether the rest is answered by samples.
    pub(super) more: bool,
}

impl Due {
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.containers.is_empty() && self.wanted.sandboxes.is_empty()
    }
}

/// Whether a sample of this time is at most as old as `age`. One from the future is from before the wall clock was set
/// back.
pub(super) fn is_younger(at: u64, age: u64, now: u64) -> bool {
    now.checked_sub(at).is_some_and(|passed| passed <= age)
}

impl Sampler {
    /// Which of them must be measured now: all whose samples are not fresh where that is quick, else those that have
    /// none.
    pub(super) fn due(&self, wanted: &Wanted, now: u64) -> Due {
        let older_than = |age: u64| {
            let samples = lock(&self.0.samples);
            let old = |at: Option<u64>| at.is_none_or(|at| !is_younger(at, age, now));
            Wanted {
                containers: wanted
                    .containers
                    .iter()
                    .filter(|c| old(samples.containers.get(c.id()).map(|known| known.sample.at)))
                    .cloned()
                    .collect(),
                sandboxes: wanted
                    .sandboxes
                    .iter()
                    .filter(|s| old(samples.sandboxes.get(s.id()).map(|known| known.sample.at)))
                    .cloned()
                    .collect(),
            }
        };
        let due = older_than(FRESH);
        let count = due.containers.len() + due.sandboxes.len();
        match self.is_quick(count) {
            true => Due { wanted: due, more: false },
            false => Due { wanted: older_than(STALE), more: true },
        }
    }

    /// Whether so many objects are measured while a request waits.
    pub(super) fn is_quick(&self, count: usize) -> bool {
        let cost = match self.0.cost.load(Ordering::Relaxed) {
            0 => FIRST_COST,
            cost => Duration::from_nanos(cost),
        };
        cost.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)) <= AT_ONCE
    }

    /// Takes these samples. Blocks, shortly.
    pub(super) fn measure(&self, engine: &Inner, due: &Due) {
        self.0.measure(engine, &due.wanted);
    }

    /// Notes that somebody asked, so that the thread goes on; with `more` for it, so that it begins.
    ///
    /// To be called after the samples for the answer were taken from here: the next round begins later, so that the
    /// next request gets others.
    pub(super) fn asked(&self, engine: &Arc<Inner>, more: bool) {
        let mut pace = lock(&self.0.pace);
        pace.asked = Some(Instant::now());
        pace.wanted |= more;
        if !pace.running && more {
            let (shared, engine) = (Arc::clone(&self.0), Arc::downgrade(engine));
            let started = thread::Builder::new().name("pod-stats".into()).spawn(move || run(&shared, &engine));
            match started {
                Ok(_) => pace.running = true,
                Err(error) => tracing::warn!("start the thread that samples containers: {error}"),
            }
        }
        drop(pace);
        self.0.changed.notify_all();
    }

    /// Changes after each round of the thread.
    pub(super) fn rounds(&self) -> watch::Receiver<u64> {
        self.0.rounds.subscribe()
    }

    /// For an object that is gone.
    pub(crate) fn forget(&self, id: &str) {
        let mut samples = lock(&self.0.samples);
        samples.containers.remove(id);
        samples.sandboxes.remove(id);
    }

    pub(super) fn container(&self, id: &str) -> Option<Arc<ContainerStats>> {
        lock(&self.0.samples).containers.get(id).map(|known| Arc::clone(&known.sample))
    }

    pub(super) fn containers(&self, wanted: &[Arc<Container>]) -> Vec<Arc<ContainerStats>> {
        let samples = lock(&self.0.samples);
        let known = wanted.iter().filter(|container| container.is_running());
        known.filter_map(|c| samples.containers.get(c.id()).map(|known| Arc::clone(&known.sample))).collect()
    }

    pub(super) fn sandboxes(&self, wanted: &[Arc<Sandbox>]) -> Vec<Arc<SandboxSample>> {
        let samples = lock(&self.0.samples);
        wanted.iter().filter_map(|s| samples.sandboxes.get(s.id()).map(|known| Arc::clone(&known.sample))).collect()
    }
}

impl Shared {
    fn measure(&self, engine: &Inner, wanted: &Wanted) {
        let count = wanted.containers.len() + wanted.sandboxes.len();
        if count == 0 {
            return;
        }
        let begun = Instant::now();
        for container in &wanted.containers {
            self.measure_container(engine, container);
        }
        if !wanted.sandboxes.is_empty() {
            let interfaces = Interfaces::look(engine);
            let parents = Parents::of(engine);
            for sandbox in &wanted.sandboxes {
                self.measure_sandbox(engine, sandbox, &interfaces, parents.alone(engine, sandbox));
            }
        }
        let each = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX) / count as u64;
        let before = self.cost.load(Ordering::Relaxed);
        // A moving mean: one interrupted look does not decide.
        let mean = if before == 0 { each } else { (before * 7 + each) / 8 };
        self.cost.store(mean.max(1), Ordering::Relaxed);
    }

    fn measure_container(&self, engine: &Inner, container: &Container) {
        let last = lock(&self.samples).containers.get(container.id()).map(|known| Arc::clone(&known.sample.occasional));
        match measure::container(engine, container, last) {
            Ok(mut sample) => {
                let mut samples = lock(&self.samples);
                let mut rate = samples.containers.get(container.id()).map(|known| known.rate).unwrap_or_default();
                // One that is just being started has no start yet.
                let status = &sample.container;
                let begun = if status.started_at == 0 { status.created_at } else { status.started_at };
                sample.cpu_rate = rate.next(sample.at, sample.cgroup.cpu_usage_ns, begun);
                let known = Known { sample: Arc::new(sample), group: None, rate };
                samples.containers.insert(container.id().to_owned(), known);
            }
            Err(error) => {
                tracing::debug!("{error}");
                lock(&self.samples).containers.remove(container.id());
            }
        }
    }

    fn measure_sandbox(&self, engine: &Inner, sandbox: &Sandbox, interfaces: &Interfaces, alone: bool) {
        let known = {
            let samples = lock(&self.samples);
            samples
                .sandboxes
                .get(sandbox.id())
                .map(|known| (Arc::clone(&known.sample), known.group.clone(), known.rate))
        };
        let known = known.map(|(sample, group, rate)| Known { sample, group, rate });
        let (mut sample, group) = measure::sandbox(engine, sandbox, interfaces, (known.as_ref(), alone));
        let mut rate = known.map(|known| known.rate).unwrap_or_default();
        let begun = sample.sandbox.created_at;
        sample.cpu_rate = sample.cgroup.as_ref().and_then(|stats| rate.next(sample.at, stats.cpu_usage_ns, begun));
        let known = Known { sample: Arc::new(sample), group, rate };
        lock(&self.samples).sandboxes.insert(sandbox.id().to_owned(), known);
    }

    /// Everything, once; what is gone is forgotten.
    fn round(&self, engine: &Inner) {
        let mut containers = engine.containers();
        containers.retain(|container| container.is_running());
        let mut sandboxes = engine.sandboxes();
        sandboxes.retain(|sandbox| sandbox.is_ready());
        {
            let living: HashSet<&str> =
                containers.iter().map(|c| c.id()).chain(sandboxes.iter().map(|s| s.id())).collect();
            let mut samples = lock(&self.samples);
            samples.containers.retain(|id, _| living.contains(id.as_str()));
            samples.sandboxes.retain(|id, _| living.contains(id.as_str()));
        }
        self.measure(engine, &Wanted { containers, sandboxes });
    }

    /// Waits for the next round; `false`: there is none any more.
    fn wait(&self, last: Instant, took: Duration) -> bool {
        let pause = (took * REST).clamp(*PAUSE.start(), *PAUSE.end());
        let soon = (took * SOON_REST).clamp(SOON, SOON_MAX);
        let mut pace = lock(&self.pace);
        loop {
            if pace.ended {
                return false;
            }
            let quiet = pace.asked.is_none_or(|asked| asked.elapsed() > QUIET);
            let due = last + if pace.wanted { soon } else { pause };
            match due.checked_duration_since(Instant::now()) {
                _ if quiet => pace = self.changed.wait(pace).unwrap_or_else(PoisonError::into_inner),
                None => {
                    pace.wanted = false;
                    return true;
                }
                Some(left) => {
                    pace = self.changed.wait_timeout(pace, left).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}

/// How many pods have each cgroup above their containers: one that several share is no pod's.
struct Parents(HashMap<String, usize>);

impl Parents {
    fn of(engine: &Inner) -> Self {
        let mut parents = HashMap::new();
        for sandbox in engine.sandboxes() {
            if sandbox.config().cgroup_parent.is_some() {
                *parents.entry(engine.cgroup_of(&sandbox)).or_default() += 1;
            }
        }
        Self(parents)
    }

    fn alone(&self, engine: &Inner, sandbox: &Sandbox) -> bool {
        sandbox.config().cgroup_parent.is_none() || self.0.get(&engine.cgroup_of(sandbox)).is_none_or(|pods| *pods == 1)
    }
}

fn run(shared: &Shared, engine: &Weak<Inner>) {
    let (mut last, mut took) = (Instant::now() - *PAUSE.end(), Duration::ZERO);
    while shared.wait(last, took) {
        let Some(engine) = engine.upgrade() else { return };
        let begun = Instant::now();
        shared.round(&engine);
        (last, took) = (Instant::now(), begun.elapsed());
        shared.rounds.send_modify(|rounds| *rounds += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_from_the_future_is_old() {
        assert!(is_younger(1_000, 200, 1_200) && !is_younger(1_000, 200, 1_201));
        assert!(!is_younger(5_000, 200, 1_000), "the wall clock was set back since");
    }

    #[test]
    fn the_next_request_finds_other_samples_also_where_rounds_take_long() {
        let shared = Shared::default();
        let now = Instant::now();
        *lock(&shared.pace) = Pace { asked: Some(now), wanted: true, ..Pace::default() };
        assert!(shared.wait(now - SOON_MAX, Duration::from_millis(1500)));
        assert!(now.elapsed() < Duration::from_secs(1), "the round began {:?} late", now.elapsed());
    }
}
