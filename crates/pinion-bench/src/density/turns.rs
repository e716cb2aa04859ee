use std::{
    cell::Cell,
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};

use super::memory::Memory;
use crate::{
    engine::{Engine, Failure},
    pods::{self, RunningPod, Shape},
    process::Processes,
    results::{Better, Description, Metric, TurnLog},
    run::Scenario,
};

const PODS: &str = "pods";
const MEMORY: &str = "memory of the machine per pod";
const PSS: &str = "PSS per pod, without its program";
const PROCESSES: &str = "processes per pod, without its program";
const START: &str = "start of a pod";
const REMOVAL: &str = "removal of all pods";

/// Time before memory is read, in which short-lived programs end.
const SETTLE: Duration = Duration::from_secs(1);

/// Pods that are started until memory ends.
pub(super) struct Density {
    pub(super) engines: Vec<Engine>,
    pub(super) shape: Shape,
    /// Memory that they may take; `None` for all but the reserve.
    pub(super) budget_kib: Option<u64>,
    pub(super) most: usize,
    pub(super) at_once: usize,
    pub(super) rounds: usize,
}

impl Density {
    /// Starts pods until one fails or memory ends. Returns those that are running.
    async fn fill(&self, engine: &Engine, before: Memory, round: usize, log: &mut TurnLog) -> Vec<RunningPod> {
        let has_ended = Cell::new(false);
        let begin = |number: usize| {
            let name = format!("density-{round}-{number}");
            async move { pods::begin(engine, &self.shape, &name).await }
        };
        // Those that are being started when it ends are awaited.
        let numbers = (0..self.most).take_while(|_| !has_ended.get());
        let mut begun = stream::iter(numbers).map(begin).buffer_unordered(self.at_once);
        let mut running = Vec::new();
        while let Some((mut life, pod)) = begun.next().await {
            match life.take_failure() {
                Some(failure) => {
                    log.fail(START, None, &failure.0);
                    if !has_ended.replace(true) {
                        // This is what limits the number of pods, not memory.
                        log.fail(PODS, None, &failure.0);
                    }
                }
                None => log.add_ms(START, None, life.time()),
            }
            running.extend(pod);
            if Memory::now().is_none_or(|memory| memory.is_used_up(before, self.budget_kib)) {
                has_ended.set(true);
            }
        }
        running
    }

    /// Removes the pods.
    async fn empty(&self, engine: &Engine, running: Vec<RunningPod>, log: &mut TurnLog) {
        let start = Instant::now();
        let is_silent = Cell::new(false);
        let mut failure = None;
        // Each further one would take as long as one that timed out. Those are removed after the run.
        let pods = running.into_iter().take_while(|_| !is_silent.get());
        let mut ended = stream::iter(pods).map(|pod| pods::end(engine, pod)).buffer_unordered(self.at_once);
        while let Some(mut life) = ended.next().await {
            is_silent.set(is_silent.get() || life.has_timed_out());
            failure = failure.or(life.take_failure());
        }
        match failure {
            None => log.add(REMOVAL, None, start.elapsed().as_secs_f64()),
            Some(failure) => log.fail(REMOVAL, None, &failure.0),
        }
    }
}

impl Scenario for Density {
    fn description(&self) -> Description {
        let budget =
            self.budget_kib.map_or("all but a tenth of the machine".to_owned(), |kib| format!("{} MiB", kib >> 10));
        let settings = [
            ("image", self.shape.image().to_owned()),
            ("memory for pods", budget),
            ("most pods", self.most.to_string()),
            ("pods at once", self.at_once.to_string()),
            ("network", self.shape.network().to_owned()),
        ];
        let count = Metric { better: Better::Higher, ..Metric::lower(PODS, "") };
        Description {
            name: "density".to_owned(),
            title: "Pods until memory ends".to_owned(),
            work: "Pods of one container that sleeps are started until memory ends or one fails; then all are removed. The memory of the machine is what the \
                   kernel reports as no longer available, with its own objects for namespaces, mounts and cgroups."
                .to_owned(),
            parameter: String::new(),
            common: "Pods".to_owned(),
            settings: BTreeMap::from(settings.map(|(name, value)| (name.to_owned(), value))),
            metrics: vec![
                count.headline(),
                Metric::lower(MEMORY, "KiB"),
                Metric::lower(PSS, "KiB"),
                Metric::lower(PROCESSES, ""),
                Metric::lower(START, "ms"),
                Metric::lower(REMOVAL, "s"),
            ],
            contestants: self.engines.iter().map(pods::contestant).collect(),
            rounds: self.rounds,
        }
    }

    async fn warm_up(&mut self, contestant: usize) -> Result<(), Failure> {
        let engine = &self.engines[contestant];
        let (mut life, pod) = pods::begin(engine, &self.shape, "density-warm").await;
        if let Some(pod) = pod {
            life = pods::end(engine, pod).await;
        }
        life.take_failure().map_or(Ok(()), Err)
    }

    async fn turn(&mut self, contestant: usize, round: usize, log: &mut TurnLog) {
        let engine = &self.engines[contestant];
        let (Some(before), processes) = (Memory::now(), Processes::now()) else {
            return log.fail(PODS, None, "read /proc/meminfo: MemAvailable is missing");
        };
        let is_readable = engine.daemon_now().is_ok_and(|daemon| processes.pss_of_tree(daemon) > 0);
        let running = self.fill(engine, before, round, log).await;
        tokio::time::sleep(SETTLE).await;
        let count = running.len();
        if count > 0 {
            log.add(PODS, None, count as f64);
        }
        if let Some(after) = Memory::now().filter(|_| count > 0) {
            let (new, pss) = Processes::now().since(&processes, &self.shape.command().join(" "));
            let each = |value: f64| value / count as f64;
            log.add(MEMORY, None, each(before.available.saturating_sub(after.available) as f64));
            if is_readable {
                log.add(PSS, None, each(pss as f64 / 1024.0));
                log.add(PROCESSES, None, each(new as f64));
            } else {
                log.fail(PSS, None, "the memory of the daemon cannot be read; run pinion-bench density as root");
            }
        }
        self.empty(engine, running, log).await;
        // What stays would take memory from the next engine.
        pods::remove_leftovers(std::slice::from_ref(engine), &self.shape).await;
    }

    async fn clean_up(&mut self) {
        pods::remove_leftovers(&self.engines, &self.shape).await;
    }
}
