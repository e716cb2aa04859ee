//! The samples, and the thread that takes them.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, sync::watch};

use super::{
    guest,
    known_sample::{FRESH, KnownSample, STALE, is_younger},
    measure,
    network::Interfaces,
    subjects::{Subjects, Targets},
};
use crate::{
    ContainerId, ContainerStats, ErrorKind, SandboxId, SandboxSample, clock,
    store::{Container, Sandbox},
};

/// Pause between two rounds of the thread.
const PAUSE: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(10);
/// The pause after a round is this many times as long as the round took: 2 % of a core.
const REST: u32 = 50;
/// After a request that was answered from samples, the next round begins this soon at the earliest, so that a client
/// with two requests within a second (`crictl stats`) gets two samples.
const SOON: Duration = Duration::from_millis(500);
/// It also waits this many times as long as the last round took,
const SOON_REST: u32 = 10;
/// but at most this long: kubelet sends a request every 10 s, and must get another sample of each object. This holds
/// for rounds of up to 2 s: an object may be measured at the beginning of one round and at the end of the next.
const SOON_MAX: Duration = Duration::from_secs(6);
/// The thread pauses after this long without a request.
const QUIET: Duration = Duration::from_secs(120);
/// Maximum time spent on measuring while a request waits.
const INLINE_MAX: Duration = Duration::from_millis(3);
/// Estimated cost of measuring one object before the first measurement.
const FIRST_COST: Duration = Duration::from_micros(60);

#[derive(Default)]
struct Samples {
    containers: HashMap<ContainerId, KnownSample<ContainerStats>>,
    sandboxes: HashMap<SandboxId, KnownSample<SandboxSample>>,
}

#[derive(Default)]
struct Pace {
    last_request: Option<Instant>,
    /// Set when a request was answered from samples, so that another round is needed.
    requested: bool,
    running: bool,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    samples: Mutex<Samples>,
    pace: Mutex<Pace>,
    changed: Condvar,
    /// Recent mean cost of measuring one object, in nanoseconds.
    cost: AtomicU64,
    rounds: watch::Sender<u64>,
}

/// Samples of pods and containers, and the thread that takes them in the background.
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

/// The objects that must be measured before the response.
pub(super) struct DueSamples {
    targets: Targets,
    /// Whether the other objects are reported from samples taken in the background.
    pub(super) background: bool,
}

impl DueSamples {
    pub(super) fn is_empty(&self) -> bool {
        self.targets.containers.is_empty() && self.targets.sandboxes.is_empty()
    }
}

impl Sampler {
    /// Returns the objects that must be measured now: all without a fresh sample if that is quick, else those without a
    /// usable sample.
    pub(super) fn due(&self, targets: &Targets, now: u64) -> DueSamples {
        let older_than = |age: u64| {
            let samples = lock(&self.0.samples);
            let old = |at: Option<u64>| at.is_none_or(|at| !is_younger(at, age, now));
            Targets {
                containers: targets
                    .containers
                    .iter()
                    .filter(|c| {
                        let at = samples.containers.get(c.id()).map(|known| known.sample.at);
                        if guest::is_in_guest(c) { guest::is_newer(c, at) } else { old(at) }
                    })
                    .cloned()
                    .collect(),
                sandboxes: targets
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
            true => DueSamples { targets: due, background: false },
            false => DueSamples { targets: older_than(STALE), background: true },
        }
    }

    /// Reports whether this many objects can be measured while a request waits.
    pub(super) fn is_quick(&self, count: usize) -> bool {
        let cost = match self.0.cost.load(Ordering::Relaxed) {
            0 => FIRST_COST,
            cost => Duration::from_nanos(cost),
        };
        cost.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)) <= INLINE_MAX
    }

    /// Takes these samples. Blocks briefly.
    pub(super) fn measure(&self, subjects: &Subjects, due: &DueSamples) {
        self.0.measure(subjects, &due.targets);
    }

    /// Records a request, so that the thread continues; with `background` it also starts the thread and requests a
    /// round.
    ///
    /// Must be called after the samples for the response were read: the next round begins later, so that the next
    /// request gets other samples.
    pub(super) fn note_request(&self, subjects: &Arc<Subjects>, background: bool) {
        let mut pace = lock(&self.0.pace);
        pace.last_request = Some(Instant::now());
        pace.requested |= background;
        if !pace.running && background {
            let (shared, subjects) = (Arc::clone(&self.0), Arc::downgrade(subjects));
            let runtime = Handle::current();
            let started = thread::Builder::new().name("pod-stats".into()).spawn(move || {
                let _entered = runtime.enter();
                run(&shared, &subjects);
            });
            match started {
                Ok(_) => pace.running = true,
                Err(error) => tracing::warn!("start thread pod-stats: {error}"),
            }
        }
        drop(pace);
        self.0.changed.notify_all();
    }

    /// Returns a receiver of the number of completed rounds.
    pub(super) fn rounds(&self) -> watch::Receiver<u64> {
        self.0.rounds.subscribe()
    }

    /// Removes the samples of a container that was removed.
    pub(crate) fn forget_container(&self, id: &ContainerId) {
        lock(&self.0.samples).containers.remove(id);
    }

    /// Removes the samples of a pod that was removed.
    pub(crate) fn forget_sandbox(&self, id: &SandboxId) {
        lock(&self.0.samples).sandboxes.remove(id);
    }

    pub(super) fn containers(&self, targets: &[Arc<Container>]) -> Vec<Arc<ContainerStats>> {
        let samples = lock(&self.0.samples);
        let known = targets.iter().filter(|container| is_reported(container));
        let now = clock::now();
        let samples = known.filter_map(|c| Some((c, &samples.containers.get(c.id())?.sample)));
        let usable = samples.filter(|(c, sample)| !guest::is_in_guest(c) || is_younger(sample.at, STALE, now));
        usable.map(|(_, sample)| Arc::clone(sample)).collect()
    }

    pub(super) fn sandboxes(&self, targets: &[Arc<Sandbox>]) -> Vec<Arc<SandboxSample>> {
        let samples = lock(&self.0.samples);
        targets.iter().filter_map(|s| samples.sandboxes.get(s.id()).map(|known| Arc::clone(&known.sample))).collect()
    }
}

/// Whether the sample of a container is reported.
fn is_reported(container: &Container) -> bool {
    container.is_running() && !guest::is_silent(container)
}

impl Shared {
    fn measure(&self, subjects: &Subjects, targets: &Targets) {
        let count = targets.containers.len() + targets.sandboxes.len();
        if count == 0 {
            return;
        }
        let start = Instant::now();
        for container in &targets.containers {
            self.measure_container(subjects, container);
        }
        if !targets.sandboxes.is_empty() {
            let interfaces = Interfaces::read(subjects);
            let parents = Parents::count(subjects);
            for sandbox in &targets.sandboxes {
                self.measure_sandbox(subjects, sandbox, &interfaces, parents.is_exclusive(subjects, sandbox));
            }
        }
        let each = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX) / count as u64;
        let before = self.cost.load(Ordering::Relaxed);
        // A moving mean, so that a single interrupted measurement has little effect.
        let mean = if before == 0 { each } else { (before * 7 + each) / 8 };
        self.cost.store(mean.max(1), Ordering::Relaxed);
    }

    fn measure_container(&self, subjects: &Subjects, container: &Container) {
        let last = lock(&self.samples).containers.get(container.id()).map(|known| Arc::clone(&known.sample.expensive));
        match measure::container(subjects, container, last) {
            Ok(mut sample) => {
                let mut samples = lock(&self.samples);
                let mut rate = samples.containers.get(container.id()).map(|known| known.rate).unwrap_or_default();
                // A container that is being started has no start time yet.
                let status = &sample.container;
                let start = if status.started_at == 0 { status.created_at } else { status.started_at };
                sample.cpu_rate = rate.next(sample.at, sample.cgroup.cpu_usage_ns, start);
                let known = KnownSample { sample: Arc::new(sample), group: None, rate };
                samples.containers.insert(container.id().clone(), known);
            }
            // A guest may report again: its rate continues then.
            Err(error) if error.kind == ErrorKind::Unavailable && guest::is_in_guest(container) => {
                tracing::debug!("{error}");
            }
            Err(error) => {
                tracing::debug!("{error}");
                lock(&self.samples).containers.remove(container.id());
            }
        }
    }

    fn measure_sandbox(&self, subjects: &Subjects, sandbox: &Sandbox, interfaces: &Interfaces, exclusive: bool) {
        let known = {
            let samples = lock(&self.samples);
            samples
                .sandboxes
                .get(sandbox.id())
                .map(|known| (Arc::clone(&known.sample), known.group.clone(), known.rate))
        };
        let known = known.map(|(sample, group, rate)| KnownSample { sample, group, rate });
        let (mut sample, group) = measure::sandbox(subjects, sandbox, interfaces, (known.as_ref(), exclusive));
        let mut rate = known.map(|known| known.rate).unwrap_or_default();
        let start = sample.sandbox.created_at;
        sample.cpu_rate = sample.cgroup.as_ref().and_then(|stats| rate.next(sample.at, stats.cpu_usage_ns, start));
        let known = KnownSample { sample: Arc::new(sample), group, rate };
        lock(&self.samples).sandboxes.insert(sandbox.id().clone(), known);
    }

    /// Measures all objects once, and removes the samples of those that are gone.
    fn round(&self, subjects: &Subjects) {
        let mut containers = subjects.registry.listed_containers();
        containers.retain(|container| container.is_running());
        let mut sandboxes = subjects.registry.sandboxes();
        sandboxes.retain(|sandbox| sandbox.is_ready());
        {
            let running: HashSet<&ContainerId> = containers.iter().map(|container| container.id()).collect();
            let ready: HashSet<&SandboxId> = sandboxes.iter().map(|sandbox| sandbox.id()).collect();
            let mut samples = lock(&self.samples);
            samples.containers.retain(|id, _| running.contains(id));
            samples.sandboxes.retain(|id, _| ready.contains(id));
        }
        let targets = Targets { containers, sandboxes };
        guest::refresh_blocking(subjects, &targets);
        self.measure(subjects, &targets);
    }

    /// Waits for the next round. Returns false when the sampler was dropped.
    fn wait(&self, last: Instant, took: Duration) -> bool {
        let pause = (took * REST).clamp(*PAUSE.start(), *PAUSE.end());
        let soon = (took * SOON_REST).clamp(SOON, SOON_MAX);
        let mut pace = lock(&self.pace);
        loop {
            if pace.ended {
                return false;
            }
            let quiet = pace.last_request.is_none_or(|request| request.elapsed() > QUIET);
            let due = last + if pace.requested { soon } else { pause };
            match due.checked_duration_since(Instant::now()) {
                _ if quiet => pace = self.changed.wait(pace).unwrap_or_else(PoisonError::into_inner),
                None => {
                    pace.requested = false;
                    return true;
                }
                Some(remaining) => {
                    pace = self.changed.wait_timeout(pace, remaining).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}

/// Number of pods by parent cgroup: the usage of a cgroup that several pods share is not that of a pod.
struct Parents(HashMap<String, usize>);

impl Parents {
    fn count(subjects: &Subjects) -> Self {
        let mut parents = HashMap::new();
        for sandbox in subjects.registry.sandboxes() {
            if sandbox.config().cgroup_parent.is_some() {
                *parents.entry(subjects.node.cgroup_of(&sandbox)).or_default() += 1;
            }
        }
        Self(parents)
    }

    fn is_exclusive(&self, subjects: &Subjects, sandbox: &Sandbox) -> bool {
        sandbox.config().cgroup_parent.is_none()
            || self.0.get(&subjects.node.cgroup_of(sandbox)).is_none_or(|pods| *pods == 1)
    }
}

fn run(shared: &Shared, subjects: &Weak<Subjects>) {
    let (mut last, mut took) = (Instant::now() - *PAUSE.end(), Duration::ZERO);
    while shared.wait(last, took) {
        let Some(subjects) = subjects.upgrade() else { return };
        let start = Instant::now();
        shared.round(&subjects);
        (last, took) = (Instant::now(), start.elapsed());
        shared.rounds.send_modify(|rounds| *rounds += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_from_the_future_is_not_young() {
        assert!(is_younger(1_000, 200, 1_200) && !is_younger(1_000, 200, 1_201));
        assert!(!is_younger(5_000, 200, 1_000), "the wall clock was set back");
    }

    #[test]
    fn the_next_request_gets_other_samples_even_if_rounds_take_long() {
        let shared = Shared::default();
        let now = Instant::now();
        *lock(&shared.pace) = Pace { last_request: Some(now), requested: true, ..Pace::default() };
        assert!(shared.wait(now - SOON_MAX, Duration::from_millis(1500)));
        assert!(now.elapsed() < Duration::from_secs(1), "the round began {:?} late", now.elapsed());
    }
}
