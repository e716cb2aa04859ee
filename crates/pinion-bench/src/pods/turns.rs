use std::{collections::BTreeMap, time::Instant};

use futures_util::future::join_all;

use super::{Arguments, Life, Shape, density, lifecycle, remove_leftovers};
use crate::{
    engine::{Engine, Failure},
    machine::Counters,
    results::{Contestant, Description, Metric, TurnLog},
    run::Scenario,
};

const WHOLE: &str = "whole life";
const WALL: &str = "time per pod";
const CPU: &str = "CPU per pod, whole machine";
const FORKS: &str = "forks and threads per pod";
const DISK: &str = "written to disk per pod";
const START_ALL: &str = "start of all running pods";
const REMOVE_ALL: &str = "removal of all running pods";
const DAEMON: &str = "daemon and its children, PSS";
const PROCESSES: &str = "processes per running pod";
const PSS: &str = "PSS per running pod";
const MOUNTS: &str = "host mounts per running pod";

/// The life cycle of pods.
pub(super) struct Pods {
    engines: Vec<Engine>,
    shape: Shape,
    in_flight: Vec<usize>,
    rounds: usize,
    pods: usize,
    density: usize,
    warmup: usize,
}

impl Pods {
    pub(super) fn new(engines: Vec<Engine>, shape: Shape, arguments: &Arguments) -> Self {
        Self {
            engines,
            shape,
            in_flight: arguments.in_flight.iter().copied().filter(|pods| *pods > 0).collect(),
            rounds: arguments.rounds,
            pods: arguments.pods,
            density: arguments.density,
            warmup: arguments.warmup,
        }
    }

    fn settings(&self) -> BTreeMap<String, String> {
        let settings = [
            ("image", self.shape.image().to_owned()),
            ("network", self.shape.network().to_owned()),
            ("pods of a turn", self.pods.to_string()),
            ("pods at a time", self.in_flight.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
            ("pods that run together, for processes and memory", self.density.to_string()),
            ("pods before the first round", self.warmup.to_string()),
        ];
        settings.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// Measures the life of pods, a number of them at a time. Returns whether the engine responds.
    async fn lives(&self, engine: &Engine, in_flight: usize, round: usize, log: &mut TurnLog) -> bool {
        let count = self.pods.max(in_flight);
        let parameter = Some(in_flight as f64);
        let names: Vec<String> = (0..count).map(|number| format!("{in_flight}-{round}-{number}")).collect();
        let before = Counters::after_sync();
        let start = Instant::now();
        let mut lives = Vec::with_capacity(count);
        for batch in names.chunks(in_flight) {
            lives.extend(join_all(batch.iter().map(|name| lifecycle::run(engine, &self.shape, name))).await);
            if lives.iter().any(Life::has_timed_out) {
                break;
            }
        }
        let wall = start.elapsed();
        let counters = Counters::after_sync().since(before);
        lives.iter().for_each(|life| life.record(WHOLE, parameter, log));
        // The pods of a turn with a failure did less work than those of others.
        if lives.iter().all(|life| life.failure().is_none()) {
            let per_pod = |value: f64| value / count as f64;
            log.add_ms(WALL, parameter, wall / count as u32);
            log.add(CPU, parameter, per_pod(counters.busy_ms as f64));
            log.add(FORKS, parameter, per_pod(counters.forks as f64));
            log.add(DISK, parameter, per_pod(counters.written as f64 / 1024.0));
        }
        !lives.iter().any(Life::has_timed_out)
    }

    async fn density(&self, engine: &Engine, round: usize, log: &mut TurnLog) {
        match density::measure(engine, &self.shape, self.density, &format!("dense-{round}")).await {
            Ok(density) => {
                log.add(START_ALL, None, density.start.as_secs_f64());
                match density.removal {
                    Ok(time) => log.add(REMOVE_ALL, None, time.as_secs_f64()),
                    Err(failure) => log.fail(REMOVE_ALL, None, &failure.0),
                }
                log.add(DAEMON, None, density.rest_kib as f64);
                log.add(PROCESSES, None, density.processes);
                log.add(PSS, None, density.pss_kib);
                log.add(MOUNTS, None, density.mounts);
            }
            Err(failure) => log.fail(START_ALL, None, &failure.0),
        }
    }
}

impl Scenario for Pods {
    fn description(&self) -> Description {
        let mut metrics: Vec<Metric> = lifecycle::STEPS.iter().map(|step| Metric::lower(step, "ms")).collect();
        metrics.push(Metric::lower(WHOLE, "ms").headline());
        metrics.extend([Metric::lower(WALL, "ms"), Metric::lower(CPU, "ms"), Metric::lower(FORKS, "")]);
        metrics.push(Metric::lower(DISK, "KiB"));
        // Without lives, the pods that run together are the question.
        let all = [START_ALL, REMOVE_ALL].map(|name| Metric::lower(name, "s"));
        metrics.extend(all.map(|metric| if self.in_flight.is_empty() { metric.headline() } else { metric }));
        metrics.extend([Metric::lower(DAEMON, "KiB"), Metric::lower(PROCESSES, "")]);
        metrics.extend([Metric::lower(PSS, "KiB"), Metric::lower(MOUNTS, "")]);
        Description {
            name: "pods".to_owned(),
            title: "Life cycle of pods".to_owned(),
            work: "A pod with one container: run, create, start, exec of `true`, stop without a grace period, remove. Processes and memory are \
                   those of running pods without the processes of the containers."
                .to_owned(),
            parameter: "pods at a time".to_owned(),
            common: format!("{} running pods", self.density),
            settings: self.settings(),
            metrics,
            contestants: self.engines.iter().map(contestant).collect(),
            rounds: self.rounds,
        }
    }

    async fn warm_up(&mut self, contestant: usize) -> Result<(), Failure> {
        for number in 0..self.warmup {
            let mut life = lifecycle::run(&self.engines[contestant], &self.shape, &format!("warm-{number}")).await;
            if let Some(failure) = life.take_failure() {
                return Err(failure);
            }
        }
        Ok(())
    }

    async fn turn(&mut self, contestant: usize, round: usize, log: &mut TurnLog) {
        let engine = &self.engines[contestant];
        for in_flight in &self.in_flight {
            if !self.lives(engine, *in_flight, round, log).await {
                return;
            }
        }
        if self.density > 0 {
            self.density(engine, round, log).await;
        }
    }

    async fn clean_up(&mut self) {
        remove_leftovers(&self.engines, &self.shape).await;
    }
}

/// Describes an engine.
pub(crate) fn contestant(engine: &Engine) -> Contestant {
    let handler = match engine.handler() {
        "" => "its default handler".to_owned(),
        handler => format!("handler {handler}"),
    };
    Contestant::new(&engine.name, &engine.version, &handler)
}
