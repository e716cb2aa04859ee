//! What is measured: pods of engines, and runtimes at the command line.

use std::time::Duration;

use super::engine_run::EnginePod;
use crate::{
    engine::{Engine, Failure},
    oci::{CommandLines, RuntimeArgument},
    pods::Shape,
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
                    contestants.remove().await?;
                    return Err(failure);
                }
            }
        }
        Ok(contestants)
    }

    /// Returns the number of contestants.
    pub(crate) fn len(&self) -> usize {
        self.pods.len() + self.runtimes
    }

    /// Returns name and version of a contestant, and whether it is an engine.
    pub(crate) fn describe(&self, index: usize) -> (String, String, bool) {
        match index.checked_sub(self.pods.len()) {
            None => (self.pods[index].engine().name.clone(), self.pods[index].engine().version.clone(), true),
            Some(runtime) => {
                let (name, version) = self.command_lines.describe(runtime);
                (name.to_owned(), version.to_owned(), false)
            }
        }
    }

    /// Runs `true` in a new container. Returns the time.
    ///
    /// # Errors
    /// `Err` if the measurement cannot continue; `Ok(Err)` with the message if the container failed.
    pub(crate) async fn run_true(&mut self, index: usize) -> Result<Result<Duration, String>, Failure> {
        let Some(runtime) = index.checked_sub(self.pods.len()) else {
            return Ok(self.pods[index].run_true(None).await);
        };
        self.runs += 1;
        let id = format!("bench-{}", self.runs);
        let sample = tokio::task::block_in_place(|| self.command_lines.run_true(runtime, &id));
        let sample = sample.map_err(|e| Failure(e.to_string()))?;
        Ok(match sample.code {
            0 => Ok(Duration::from_secs_f64(sample.wall_us / 1e6)),
            code => Err(format!("exit code {code}: {}", self.command_lines.last_error(runtime))),
        })
    }

    /// Removes the pods.
    pub(crate) async fn remove(self) -> Result<(), Failure> {
        let mut result = Ok(());
        for pod in self.pods {
            result = pod.remove().await.and(result);
        }
        result
    }
}
