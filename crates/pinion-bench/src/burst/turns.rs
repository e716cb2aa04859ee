use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use tokio::sync::Notify;

use super::poll;
use crate::{
    engine::{Engine, Failure},
    machine::Counters,
    pods::{self, Life, STEPS, Shape},
    results::{Description, Metric, TurnLog},
    run::Scenario,
};

const START: &str = "start of a pod";
const REMOVAL: &str = "removal of a pod";
const ALL_RUN: &str = "all pods running";
const ALL_REMOVED: &str = "all pods removed";
const CPU: &str = "CPU per pod, whole machine";

/// Many pods, started and removed one after the other and at once.
pub(super) struct Burst {
    pub(super) engines: Vec<Engine>,
    pub(super) shape: Shape,
    pub(super) at_once: Vec<usize>,
    pub(super) pods: usize,
    pub(super) rounds: usize,
    /// Time between two polls.
    pub(super) period: Duration,
}

/// A burst that was measured.
#[derive(Default)]
struct Outcome {
    starts: Vec<Life>,
    removals: Vec<Life>,
    running: Duration,
    removed: Duration,
}

impl Burst {
    /// Measures one burst. Returns whether the engine responds.
    async fn burst(&self, engine: &Engine, at_once: usize, round: usize, log: &mut TurnLog) -> bool {
        let parameter = Some(at_once as f64);
        let before = Counters::now();
        let mut outcome = Outcome::default();
        {
            let pods = self.pods(engine, at_once, round, &mut outcome);
            // The last call of the poll is waited for: it may be the slowest one.
            let end = Notify::new();
            let pods = async {
                pods.await;
                end.notify_one();
            };
            tokio::join!(pods, poll::poll(engine, (self.period, &end), parameter, log));
        }
        let counters = Counters::now().since(before);
        outcome.starts.iter().for_each(|life| life.record(START, parameter, log));
        outcome.removals.iter().for_each(|life| life.record(REMOVAL, parameter, log));
        // A burst with a failure had less work than another one.
        let failed = |lives: &[Life]| lives.iter().find_map(|life| life.failure().map(|failure| failure.0.clone()));
        let (not_started, not_removed) = (failed(&outcome.starts), failed(&outcome.removals));
        match &not_started {
            None => log.add(ALL_RUN, parameter, outcome.running.as_secs_f64()),
            Some(cause) => log.fail(ALL_RUN, parameter, cause),
        }
        match not_started.as_ref().or(not_removed.as_ref()) {
            None => {
                log.add(ALL_REMOVED, parameter, outcome.removed.as_secs_f64());
                log.add(CPU, parameter, counters.busy_ms as f64 / outcome.starts.len().max(1) as f64);
            }
            Some(cause) => log.fail(ALL_REMOVED, parameter, cause),
        }
        !outcome.starts.iter().chain(&outcome.removals).any(Life::has_timed_out)
    }

    async fn pods(&self, engine: &Engine, at_once: usize, round: usize, outcome: &mut Outcome) {
        let start = Instant::now();
        let begin = |number: usize| async move {
            pods::begin(engine, &self.shape, &format!("burst-{at_once}-{round}-{number}")).await
        };
        let mut started = stream::iter((0..self.pods.max(at_once)).map(begin)).buffer_unordered(at_once);
        let mut running = Vec::new();
        while let Some((life, pod)) = started.next().await {
            running.extend(pod);
            let has_timed_out = life.has_timed_out();
            outcome.starts.push(life);
            if has_timed_out {
                break; // Each further pod would take as long. What is begun is removed after the run.
            }
        }
        drop(started);
        outcome.running = start.elapsed();
        let start = Instant::now();
        let removals = running.into_iter().map(|pod| pods::end(engine, pod));
        let mut ended = stream::iter(removals).buffer_unordered(at_once);
        while let Some(life) = ended.next().await {
            let has_timed_out = life.has_timed_out();
            outcome.removals.push(life);
            if has_timed_out {
                break;
            }
        }
        outcome.removed = start.elapsed();
    }
}

impl Scenario for Burst {
    fn description(&self) -> Description {
        let mut metrics = vec![Metric::lower(ALL_RUN, "s").headline(), Metric::lower(ALL_REMOVED, "s")];
        metrics.extend([Metric::lower(START, "ms"), Metric::lower(REMOVAL, "ms")]);
        let steps = STEPS.iter().filter(|step| **step != "ExecSync");
        metrics.extend(steps.chain(&poll::CALLS).map(|name| Metric::lower(name, "ms")));
        metrics.push(Metric::lower(CPU, "ms"));
        let at_once: Vec<String> = self.at_once.iter().map(usize::to_string).collect();
        let settings = [
            ("image", self.shape.image().to_owned()),
            ("pods of a burst", self.pods.to_string()),
            ("pods at once", at_once.join(", ")),
            ("network", self.shape.network().to_owned()),
            ("milliseconds between two polls", self.period.as_millis().to_string()),
        ];
        Description {
            name: "burst".to_owned(),
            title: "Bursts of pods".to_owned(),
            work: "Many pods with one container are started, and then removed, one after the other and at once. In the meantime pods and containers \
                   are listed as by a kubelet."
                .to_owned(),
            parameter: "pods at once".to_owned(),
            common: String::new(),
            settings: BTreeMap::from(settings.map(|(name, value)| (name.to_owned(), value))),
            metrics,
            contestants: self.engines.iter().map(pods::contestant).collect(),
            rounds: self.rounds,
        }
    }

    async fn warm_up(&mut self, contestant: usize) -> Result<(), Failure> {
        let engine = &self.engines[contestant];
        let (mut life, pod) = pods::begin(engine, &self.shape, "burst-warm").await;
        if let Some(pod) = pod {
            life = pods::end(engine, pod).await;
        }
        life.take_failure().map_or(Ok(()), Err)
    }

    async fn turn(&mut self, contestant: usize, round: usize, log: &mut TurnLog) {
        let engine = &self.engines[contestant];
        for at_once in &self.at_once {
            if !self.burst(engine, *at_once, round, log).await {
                return;
            }
        }
    }

    async fn clean_up(&mut self) {
        pods::remove_leftovers(&self.engines, &self.shape).await;
    }
}
