//! What is measured: pods of engines, and runtimes at the command line.

use std::time::Duration;

use super::engine_run::EnginePod;
use crate::{
    engine::{Engine, Failure},
    oci::{CommandLines, RuntimeArgument},
    output::note,
    pods::{self, Shape},
    results,
};

/// All engines, followed by all runtimes at the command line.
pub(crate) struct Contestants {
    pub(super) pods: Vec<EnginePod>,
    pub(super) command_lines: CommandLines,
    runtimes: usize,
    runs: usize,
}

impl Contestants {
    /// Runs a pod on each engine, and tests each runtime.
    pub(crate) async fn prepare(
        engines: &[Engine],
        shape: &Shape,
        runtimes: &[RuntimeArgument],
    ) -> Result<Self, Failure> {
        let command_lines = CommandLines::prepare(runtimes).map_err(|e| Failure(e.to_string()))?;
        let mut contestants = Self { pods: Vec::new(), command_lines, runtimes: runtimes.len(), runs: 0 };
        for (number, engine) in engines.iter().enumerate() {
            match EnginePod::run(engine, shape, number).await {
                Ok(pod) => contestants.pods.push(pod),
                Err(failure) => {
                    contestants.remove().await;
                    return Err(failure);
                }
            }
        }
        Ok(contestants)
    }

    /// Describes all contestants.
    pub(crate) fn describe(&self) -> Vec<results::Contestant> {
        let engines = self.pods.iter().map(|pod| pods::contestant(pod.engine()));
        let runtimes = (0..self.runtimes).map(|runtime| {
            let (name, version) = self.command_lines.describe(runtime);
            results::Contestant::new(name, version, "command line")
        });
        engines.chain(runtimes).collect()
    }

    /// Runs `true` in a new container. Returns the time.
    ///
    /// # Errors
    /// Why the container failed.
    pub(crate) async fn run_true(&mut self, index: usize) -> Result<Duration, String> {
        let Some(runtime) = index.checked_sub(self.pods.len()) else {
            return self.pods[index].run_true(None).await;
        };
        self.runs += 1;
        let id = format!("bench-{}", self.runs);
        let sample = tokio::task::block_in_place(|| self.command_lines.run_true(runtime, &id));
        let sample = sample.map_err(|e| e.to_string())?;
        match sample.code {
            0 => Ok(Duration::from_secs_f64(sample.wall_us / 1e6)),
            code => Err(format!("exit code {code}: {}", self.command_lines.last_error(runtime))),
        }
    }

    /// Removes the pods.
    pub(crate) async fn remove(&mut self) {
        for pod in self.pods.drain(..) {
            if let Err(failure) = pod.remove().await {
                note(&format!("pinion-bench: {failure}"));
            }
        }
    }
}
