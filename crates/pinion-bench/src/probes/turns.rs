use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};

use super::load::{self, Plan};
use crate::{
    engine::{Engine, Failure},
    pods::{self, RunningPod, Shape},
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
    pods: Vec<Vec<RunningPod>>,
}

impl Probes {
    pub(super) fn new(engines: Vec<Engine>, shape: Shape, plan: Plan, (containers, rounds): (usize, usize)) -> Self {
        let pods = engines.iter().map(|_| Vec::new()).collect();
        Self { engines, shape, plan, containers, rounds, pods }
    }

    /// Creates the pods of an engine that are missing.
    async fn create(&mut self, contestant: usize) -> Result<(), Failure> {
        let (engine, shape, pods) = (&self.engines[contestant], &self.shape, &mut self.pods[contestant]);
        // Two contestants may be the same engine under different names.
        let begin =
            |number: usize| async move { pods::begin(engine, shape, &format!("probe-{contestant}-{number}")).await };
        let mut begun = stream::iter((pods.len()..self.containers).map(begin)).buffer_unordered(IN_FLIGHT);
        while let Some((mut life, pod)) = begun.next().await {
            pods.extend(pod);
            if let Some(failure) = life.take_failure() {
                return Err(failure);
            }
        }
        Ok(())
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
            ("network", if self.shape.is_in_host_network() { "host" } else { "pod" }.to_owned()),
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
        let containers: Vec<&str> = self.pods[contestant].iter().map(RunningPod::container).collect();
        let load = load::run(&self.engines[contestant], &self.plan, &containers).await;
        for time in &load.times {
            log.add_ms(PROBE, None, *time);
        }
        for error in &load.errors {
            log.fail(PROBE, None, error);
        }
        let probes = load.times.len() + load.errors.len();
        let due = self.plan.length.as_secs_f64() / self.plan.period.as_secs_f64() * containers.len() as f64;
        let each = |value: f64| value / probes.max(1) as f64;
        log.add(COMPLETED, None, (100.0 * probes as f64 / due).min(100.0));
        log.add(NODE, None, load.node_ms as f64 / load.wall.as_secs_f64() / 10.0);
        log.add(NODE_EACH, None, each(load.node_ms as f64));
        log.add(FORKS, None, each(load.forks as f64));
        log.add(ZOMBIES, None, load.zombies as f64);
    }

    async fn clean_up(&mut self) {
        for (engine, pods) in self.engines.iter().zip(&mut self.pods) {
            let mut ended = stream::iter(pods.drain(..).map(|pod| pods::end(engine, pod))).buffer_unordered(IN_FLIGHT);
            while let Some(life) = ended.next().await {
                if life.has_timed_out() {
                    break;
                }
            }
        }
        pods::remove_leftovers(&self.engines, &self.shape).await;
    }
}
