//! Runtimes at the command line, as another scenario compares them with engines.

use std::io;

use super::{
    Contestant, WorkDirectory,
    bundle::Bundle,
    memory, prepare,
    runner::Sample,
    runtime::{Runtime, RuntimeArgument},
};

/// Runtimes with a bundle and a runner each.
pub(crate) struct CommandLines {
    directory: WorkDirectory,
    base: Bundle,
    contestants: Vec<Contestant>,
}

impl CommandLines {
    /// Prepares and tests the runtimes.
    ///
    /// # Errors
    /// A runtime cannot run the bundle.
    pub(crate) fn prepare(runtimes: &[RuntimeArgument]) -> io::Result<Self> {
        let directory = WorkDirectory::create()?;
        let base = Bundle::create(directory.0.join("bundle"))?;
        let states = directory.0.join("states");
        let prepare = |named| prepare(Runtime::new(named, &states), &base, &directory.0);
        let contestants = runtimes.iter().map(prepare).collect::<io::Result<_>>()?;
        Ok(Self { directory, base, contestants })
    }

    /// Returns name and version of a runtime.
    pub(crate) fn describe(&self, index: usize) -> (&str, &str) {
        let runtime = &self.contestants[index].runtime;
        (&runtime.name, &runtime.version)
    }

    /// Runs `true` in a new container. An error of the runtime is in the sample and in [`Self::last_error`].
    pub(crate) fn run_true(&mut self, index: usize, id: &str) -> io::Result<Sample> {
        let contestant = &mut self.contestants[index];
        let words = contestant.runtime.run(&contestant.bundle(&self.directory.0), &contestant.group, id);
        contestant.runner.run(words, 0)
    }

    /// Returns the last line that a runtime wrote to standard error.
    pub(crate) fn last_error(&self, index: usize) -> String {
        self.contestants[index].runner.last_error()
    }

    /// Returns the lowest memory limit in KiB at which `true` runs.
    pub(crate) fn lowest_memory(&mut self, index: usize) -> io::Result<Option<u64>> {
        memory::lowest(&mut self.contestants[index], &self.base)
    }
}
