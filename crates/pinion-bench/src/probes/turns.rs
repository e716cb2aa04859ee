use std::collections::BTreeMap;

use super::load::{self, Plan};
use crate::{
    engine::{Engine, Failure},
    pods::{self, PodSet, Shape},
    results::{Better, Description, Metric, TurnLog},
    run::Scenario,
};

const PROBE: &str = "ExecSync";
const COMPLETED: &str = "completed probes of those that are due";
const NODE: &str = "CPU of the node, of one core";
const NODE_EACH: &str = "CPU of the node for a probe";
const FORKS: &str = "processes and threads for a probe";
const ZOMBIES: &str = "zombies that were not reaped in a second";

/// Number of pods that are created or removed concurrently.
const IN_FLIGHT: usize = 8;

/// Exec probes of many containers.
pub(super) struct Probes {
    engines: Vec<Engine>,
    shape: Shape,
    plan: Plan,
    containers: usize,
    rounds: usize,
    /// The pods of each engine.
    pods: Vec<PodSet>,
}

impl Probes {
    pub(super) fn new(engines: Vec<Engine>, shape: Shape, plan: Plan, (containers, rounds): (usize, usize)) -> Self {
        let pods = engines.iter().map(|_| PodSet::new("probe")).collect();
        Self { engines, shape, plan, containers, rounds, pods }
    }

    /// Creates the pods of an engine that are missing.
    async fn create(&mut self, contestant: usize) -> Result<(), Failure> {
        let (engine, shape) = (&self.engines[contestant], &self.shape);
        self.pods[contestant].grow(engine, (self.containers, IN_FLIGHT), |_| shape.clone()).await
    }
}

impl Scenario for Probes {
    fn description(&self) -> Description {
        let settings = [
            ("containers", self.containers.to_string()),
            ("milliseconds between two probes of a container", self.plan.period.as_millis().to_string()),
            ("seconds of a turn", self.plan.length.as_secs().to_string()),
            ("timeout of a probe in seconds", self.plan.timeout.to_string()),
            ("command", self.plan.command.join(" ")),
            ("network", self.shape.network().to_owned()),
        ];
        Description {
            name: "probes".to_owned(),
            title: "Exec probes".to_owned(),
            work: "A command is executed periodically in each of many containers. The next probe of a container is sent only after the response to \
                   the previous one, so that a slow engine completes fewer. CPU is that of the node without this client."
                .to_owned(),
            parameter: String::new(),
            common: format!("{} containers", self.containers),
            settings: BTreeMap::from(settings.map(|(name, value)| (name.to_owned(), value))),
            metrics: vec![
                Metric::lower(PROBE, "ms").headline(),
                Metric { better: Better::Higher, ..Metric::lower(COMPLETED, "%") },
                Metric::lower(NODE, "%"),
                Metric::lower(NODE_EACH, "ms"),
                Metric::lower(FORKS, ""),
                Metric::lower(ZOMBIES, ""),
            ],
            contestants: self.engines.iter().map(pods::contestant).collect(),
            rounds: self.rounds,
        }
    }

    async fn warm_up(&mut self, contestant: usize) -> Result<(), Failure> {
        self.create(contestant).await
    }

    async fn turn(&mut self, contestant: usize, _round: usize, log: &mut TurnLog) {
        // Those that failed before.
        if let Err(failure) = self.create(contestant).await {
            return log.fail(PROBE, None, &failure.0);
        }
        let containers = self.pods[contestant].containers();
        let load = load::run(&self.engines[contestant], &self.plan, &containers).await;
        for time in &load.times {
            log.add_ms(PROBE, None, *time);
        }
        for error in &load.errors {
            log.fail(PROBE, None, error);
        }
        // Probes that failed are less work.
        let probes = load.times.len();
        let due = self.plan.length.as_secs_f64() / self.plan.period.as_secs_f64() * containers.len() as f64;
        let each = |value: f64| value / probes.max(1) as f64;
        log.add(COMPLETED, None, (100.0 * probes as f64 / due).min(100.0));
        log.add(ZOMBIES, None, load.zombies as f64);
        if !load.errors.is_empty() {
            return;
        }
        log.add(NODE, None, load.node_ms as f64 / load.wall.as_secs_f64() / 10.0);
        log.add(NODE_EACH, None, each(load.node_ms as f64));
        log.add(FORKS, None, each(load.forks as f64));
    }

    async fn clean_up(&mut self) {
        for (engine, pods) in self.engines.iter().zip(&mut self.pods) {
            pods.remove(engine, IN_FLIGHT).await;
        }
        pods::remove_leftovers(&self.engines, &self.shape).await;
    }
}
