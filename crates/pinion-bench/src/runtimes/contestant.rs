//! What is measured: pods of engines, and runtimes and clients at the command line.

use std::time::Duration;

use super::engine_run::EnginePod;
use crate::{
    engine::{Engine, Failure},
    note::note,
    oci::{ClientArgument, CommandLines, RuntimeArgument},
    pods::{self, Shape},
    results,
};

/// All engines, followed by all runtimes and clients at the command line.
pub(crate) struct Contestants {
    pub(super) pods: Vec<EnginePod>,
    pub(super) command_lines: CommandLines,
}

impl Contestants {
    /// Tests each runtime. The pods of the engines are run later.
    pub(crate) fn prepare(
        engines: &[Engine],
        shape: &Shape,
        (runtimes, clients): (&[RuntimeArgument], &[ClientArgument]),
    ) -> Result<Self, Failure> {
        let command_lines = CommandLines::prepare(runtimes, clients, shape.image(), engines.is_empty())
            .map_err(|e| Failure(e.to_string()))?;
        let pods = engines.iter().map(|engine| EnginePod::new(engine, shape)).collect();
        Ok(Self { pods, command_lines })
    }

    /// Describes all contestants.
    pub(crate) fn describe(&self) -> Vec<results::Contestant> {
        let engines = self.pods.iter().map(|pod| pods::contestant(pod.engine()));
        engines.chain((0..self.command_lines.len()).map(|index| self.command_lines.describe(index))).collect()
    }

    /// Begins a turn of a contestant: runs the pod of an engine, if it is not running.
    pub(crate) async fn begin_turn(&mut self, index: usize) -> Result<(), String> {
        match index.checked_sub(self.pods.len()) {
            Some(runtime) => {
                self.command_lines.begin_turn(runtime);
                Ok(())
            }
            None => self.pods[index].run().await,
        }
    }

    /// Returns whether a contestant did not respond in this turn.
    pub(crate) fn is_silent(&self, index: usize) -> bool {
        match index.checked_sub(self.pods.len()) {
            Some(runtime) => self.command_lines.is_stuck(runtime),
            None => self.pods[index].is_silent(),
        }
    }

    /// Runs `true` in a new container. Returns the time.
    ///
    /// # Errors
    /// Why the container failed.
    pub(crate) async fn run_true(&mut self, index: usize) -> Result<Duration, String> {
        let Some(runtime) = index.checked_sub(self.pods.len()) else {
            return self.pods[index].run_true(None).await;
        };
        tokio::task::block_in_place(|| self.command_lines.run_true(runtime))
    }

    /// Removes the pods.
    pub(crate) async fn remove(&mut self) {
        for pod in self.pods.drain(..) {
            if let Err(cause) = pod.remove().await {
                note(&format!("pinion-bench: {cause}"));
            }
        }
    }
}
