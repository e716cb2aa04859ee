use std::{collections::BTreeMap, time::Instant};

use super::{contestant::Contestants, memory};
use crate::{
    engine::{Engine, Failure},
    machine::Counters,
    pods::{self, Shape, measure_density},
    results::{Description, Metric, TurnLog},
    run::Scenario,
    statistics::ROUNDS_MIN,
};

const RUN: &str = "container of true";
const WALL: &str = "time per container of a turn";
const CPU: &str = "CPU per container, whole machine";
const FORKS: &str = "forks and threads per container";
const DISK: &str = "written to disk per container";
const MEMORY: &str = "lowest memory limit";
const PROCESSES: &str = "processes per running pod";
const PSS: &str = "PSS per running pod";
const MOUNTS: &str = "host mounts per running pod";

/// Containers before the measurement, which fill caches.
const WARMUP: usize = 3;

/// Containers of `true` of engines and of runtimes at the command line.
pub(super) struct Runtimes {
    pub(super) contestants: Contestants,
    pub(super) engines: Vec<Engine>,
    pub(super) shape: Shape,
    pub(super) rounds: usize,
    /// Containers of a turn.
    pub(super) runs: usize,
    /// Running pods, for processes and memory.
    pub(super) density: usize,
    pub(super) searches_memory: bool,
}

impl Runtimes {
    async fn containers(&mut self, contestant: usize, log: &mut TurnLog) {
        let before = Counters::after_sync();
        let start = Instant::now();
        let mut failed = false;
        for _ in 0..self.runs {
            // An interrupt ends the turn between two containers.
            tokio::task::yield_now().await;
            match self.contestants.run_true(contestant).await {
                Ok(time) => log.add_ms(RUN, None, time),
                Err(cause) => {
                    log.fail(RUN, None, &cause);
                    failed = true;
                    if self.contestants.is_silent(contestant) {
                        return;
                    }
                }
            }
        }
        let wall = start.elapsed();
        let counters = Counters::after_sync().since(before);
        // The containers of a turn with a failure did less work than those of others.
        if !failed {
            let each = |value: u64| value as f64 / self.runs as f64;
            log.add_ms(WALL, None, wall / self.runs as u32);
            log.add(CPU, None, each(counters.busy_ms));
            log.add(FORKS, None, each(counters.forks));
            log.add(DISK, None, each(counters.written) / 1024.0);
        }
    }
}

impl Scenario for Runtimes {
    fn description(&self) -> Description {
        let settings = [
            ("image", self.shape.image().to_owned()),
            ("containers of a turn", self.runs.to_string()),
            ("running pods, for processes and memory", self.density.to_string()),
        ];
        Description {
            name: "runtimes".to_owned(),
            title: "Runtimes through engines and at the command line".to_owned(),
            work: "A container of `true`: created, started, waited for and removed in a running pod through the CRI, or by `run` of a runtime or of the client of an engine at the command \
                   line. The lowest memory limit, at which five of them succeed, is searched in the first six rounds: in steps of 64 KiB with engines, to \
                   the page or to 1.6 % at the command line."
                .to_owned(),
            parameter: String::new(),
            common: "Containers".to_owned(),
            settings: BTreeMap::from(settings.map(|(name, value)| (name.to_owned(), value))),
            metrics: vec![
                Metric::lower(RUN, "ms").headline(),
                Metric::lower(WALL, "ms"),
                Metric::lower(CPU, "ms"),
                Metric::lower(FORKS, ""),
                Metric::lower(DISK, "KiB"),
                // Two steps of the coarser search, or of the finer one where it is as coarse, are not counted as a difference.
                Metric::lower(MEMORY, "KiB").with_resolution(memory::STEP_KIB as f64, 2.0 / 64.0),
                Metric::lower(PROCESSES, ""),
                Metric::lower(PSS, "KiB"),
                Metric::lower(MOUNTS, ""),
            ],
            contestants: self.contestants.describe(),
            rounds: self.rounds,
        }
    }

    async fn warm_up(&mut self, contestant: usize) -> Result<(), Failure> {
        self.contestants.begin_turn(contestant).await.map_err(Failure)?;
        for _ in 0..WARMUP {
            self.contestants.run_true(contestant).await.map_err(Failure)?;
        }
        Ok(())
    }

    async fn turn(&mut self, contestant: usize, round: usize, log: &mut TurnLog) {
        if let Err(cause) = self.contestants.begin_turn(contestant).await {
            return log.fail(RUN, None, &cause);
        }
        self.containers(contestant, log).await;
        if self.contestants.is_silent(contestant) {
            return;
        }
        if round < ROUNDS_MIN && self.searches_memory {
            match memory::lowest(&mut self.contestants, contestant).await {
                Ok(Some(kib)) => log.add(MEMORY, None, kib as f64),
                Ok(None) => {}
                Err(failure) => log.fail(MEMORY, None, &failure.0),
            }
        }
        let engine = self.engines.get(contestant).filter(|_| self.density > 0 && round < ROUNDS_MIN);
        if let Some(engine) = engine {
            match measure_density(engine, &self.shape, self.density, &format!("dense-{round}")).await {
                Ok(density) => {
                    log.add(PROCESSES, None, density.processes);
                    log.add(PSS, None, density.pss_kib);
                    log.add(MOUNTS, None, density.mounts);
                }
                Err(failure) => log.fail(PSS, None, &failure.0),
            }
        }
    }

    async fn clean_up(&mut self) {
        self.contestants.remove().await;
        pods::remove_leftovers(&self.engines, &self.shape).await;
    }
}
