//! Runtimes and clients of engines at the command line, as another scenario compares them with engines.

use std::{io, time::Duration};

use super::{
    Contestant, WorkDirectory,
    bundle::Bundle,
    memory, prepare,
    runtime::{ClientArgument, Runtime, RuntimeArgument},
};
use crate::{note::note, results};

/// Runtimes and clients of engines, with a runner each.
pub(crate) struct CommandLines {
    directory: WorkDirectory,
    base: Bundle,
    contestants: Vec<Contestant>,
    runs: usize,
}

impl CommandLines {
    /// Prepares and tests the runtimes and the clients, which pull the image if it is missing. Those that cannot run a container are left out, except for the
    /// first one if `must_have_first`.
    pub(crate) fn prepare(
        runtimes: &[RuntimeArgument],
        clients: &[ClientArgument],
        image: &str,
        must_have_first: bool,
    ) -> io::Result<Self> {
        let directory = WorkDirectory::create()?;
        let base = Bundle::create(directory.0.join("bundle"))?;
        let states = directory.0.join("states");
        let mut contestants = Vec::new();
        let clients = clients.iter().map(|named| Runtime::client(named, image));
        for runtime in runtimes.iter().map(|named| Runtime::new(named, &states)).chain(clients) {
            match prepare(runtime, &base, &directory.0) {
                Ok(contestant) => contestants.push(contestant),
                // Ratios are those of the first one.
                Err(error) if must_have_first && contestants.is_empty() => return Err(error),
                Err(error) => note(&format!("pinion-bench: left out: {error}")),
            }
        }
        Ok(Self { directory, base, contestants, runs: 0 })
    }

    /// Returns the number of runtimes.
    pub(crate) fn len(&self) -> usize {
        self.contestants.len()
    }

    /// Begins a turn: a runtime that hung in an earlier one is tried again.
    pub(crate) fn begin_turn(&mut self, index: usize) {
        self.contestants[index].is_stuck = false;
    }

    /// Returns whether a command did not end in time in this turn. Each further one would take as long.
    pub(crate) fn is_stuck(&self, index: usize) -> bool {
        self.contestants[index].is_stuck
    }

    /// Describes a contestant.
    pub(crate) fn describe(&self, index: usize) -> results::Contestant {
        let runtime = &self.contestants[index].runtime;
        results::Contestant::new(&runtime.name, &runtime.version, &runtime.configuration())
    }

    /// Runs `true` in a new container. Returns the time.
    ///
    /// # Errors
    /// Why it failed; what it left is removed.
    pub(crate) fn run_true(&mut self, index: usize) -> Result<Duration, String> {
        self.runs += 1;
        // Those of a client have names among those of others, which must not be removed.
        let id = format!("{}-{}", self.directory.0.file_name().unwrap_or_default().to_string_lossy(), self.runs);
        let contestant = &mut self.contestants[index];
        let words = contestant.runtime.run(&contestant.bundle(&self.directory.0), &contestant.group, &id);
        let sample = contestant.sample(words, 0);
        if sample.is_err() {
            contestant.discard(&id);
        }
        sample.map(|sample| Duration::from_secs_f64(sample.wall_us / 1e6))
    }

    /// Returns the lowest memory limit in KiB at which `true` runs; `None` for a client.
    pub(crate) fn lowest_memory(&mut self, index: usize) -> io::Result<Option<u64>> {
        memory::lowest(&mut self.contestants[index], &self.base)
    }
}
