//! `pinion-bench oci`: OCI runtimes behind runc's command line, in turn, with the same bundle.

mod alike;
mod bundle;
mod memory;
mod report;
mod rounds;
mod runner;
mod runtime;
mod syscalls;

use std::path::{Path, PathBuf};

pub(crate) use runner::{RunnerArguments, serve};

use self::{
    alike::alike,
    bundle::{Bundle, Shape},
    report::Report,
    runner::Runner,
    runtime::{Named, Runtime},
};
use crate::{engine::Failure, machine::Machine};

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A runtime: NAME=PROGRAM; several are measured in turn. Ratios are to the first.
    #[arg(long = "runtime", required = true)]
    runtimes: Vec<Named>,
    /// The floor program; the one beside this program where it is there.
    #[arg(long)]
    floor: Option<PathBuf>,
    /// Runs of `run true` per runtime.
    #[arg(long, short = 'n', default_value_t = 1000)]
    runs: usize,
    /// Of `run true` after 100 ms without work, of `exec`, and of the other commands.
    #[arg(long, default_value_t = 100)]
    others: usize,
    /// Numbers of host mounts to start under; 0 leaves it out.
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 5000])]
    mounts: Vec<usize>,
    /// Leave out the search for the lowest memory limit.
    #[arg(long)]
    no_memory: bool,
    /// Write every figure to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// As the floor has it.
const FLOORS_STATES: &str = "/run/pinion-floor";

/// Where everything of a run is; removed at its end.
struct Place(PathBuf);

impl Place {
    fn make() -> std::io::Result<Self> {
        let directory = PathBuf::from(format!("/var/tmp/pinion-bench-oci-{}", std::process::id()));
        std::fs::create_dir(&directory)?;
        Ok(Self(directory))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What a runtime left mounted stays, and is seen.
        let _ = std::fs::remove_dir_all(&self.0);
        let _ = std::fs::remove_dir(FLOORS_STATES);
    }
}

/// A runtime with the process that starts it.
pub(crate) struct Contestant {
    runtime: Runtime,
    runner: Runner,
    hide_v2: bool,
    /// `linux.cgroupsPath`
    group: String,
}

/// The scenario.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure("root is needed: containers with cgroups and networks are made".to_owned()));
    }
    let place = Place::make().map_err(|error| Failure(format!("make a directory under /var/tmp: {error}")))?;
    let text = measure(arguments, &place.0).map_err(|error| Failure(error.to_string()))?;
    println!("{text}");
    Ok(())
}

fn measure(arguments: &Arguments, place: &Path) -> std::io::Result<String> {
    let base = Bundle::make(place.join("bundle"))?;
    let mut contestants = Vec::new();
    for named in &arguments.runtimes {
        contestants.push(enter(Runtime::new(named, &place.join("states")), &base, place)?);
    }
    if let Some(program) = floor(arguments) {
        let filter = place.join("filter");
        let program_bytes = seccomp::compile(&bundle::profile()).map_err(std::io::Error::other)?.filter;
        std::fs::write(&filter, program_bytes)?;
        contestants.push(enter(Runtime::floor(program, base.rootfs(), filter), &base, place)?);
    }
    alike(&contestants, &base)?;
    let mut report = Report::new(Machine::here(), &contestants);
    report.run = rounds::runs(&mut contestants, place, (arguments.runs, 0))?;
    report.idle = rounds::runs(&mut contestants, place, (arguments.others, 100))?;
    report.exec = rounds::commands(&mut contestants, place, arguments.others)?;
    report.life = rounds::lives(&mut contestants, place, arguments.others)?;
    report.syscalls = syscalls::count(&mut contestants, place)?;
    if !arguments.no_memory {
        report.memory_kib = memory::lowest(&mut contestants, &base)?;
    }
    for mounts in arguments.mounts.iter().filter(|mounts| **mounts > 0) {
        let samples = rounds::under_mounts(&mut contestants, place, (*mounts, arguments.others))?;
        report.mounts.push((*mounts, samples));
    }
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string_pretty(&report)?)?;
    }
    Ok(report.tables())
}

/// A bundle and a runner of its own, tried out: where a runtime stumbles over the v2 tree of a hybrid machine, without
/// that.
fn enter(runtime: Runtime, base: &Bundle, place: &Path) -> std::io::Result<Contestant> {
    let group = format!("/pinion-bench-{}-{}", std::process::id(), runtime.name);
    let bundle = base.sibling(&runtime.name)?;
    let shape = Shape { args: &["true"], group: &group, memory: 64 << 20, seccomp: true };
    bundle.write(&bundle::spec(&shape, &base.rootfs()))?;
    let sleeper = base.sibling(&format!("{}-sleep", runtime.name))?;
    sleeper.write(&bundle::spec(&Shape { args: &["sleep", "100000"], ..shape }, &base.rootfs()))?;
    let errors = place.join(format!("{}.errors", runtime.name));
    let mut said = String::new();
    for hide_v2 in [false, true] {
        let arguments = RunnerArguments { hide_v2, states: states(place)?, mounts: 0, place: None };
        let mut runner = Runner::start(&arguments, errors.clone())?;
        let sample = runner.run(runtime.run(&bundle.directory, &group, "bench-first"), 0)?;
        if sample.code == 0 {
            return Ok(Contestant { runtime, runner, hide_v2, group });
        }
        said = format!("exit code {}: {}", sample.code, runner.last_error());
    }
    Err(std::io::Error::other(format!("{} cannot run the bundle: {said}", runtime.name)))
}

impl Contestant {
    fn bundle(&self, place: &Path) -> PathBuf {
        place.join(&self.runtime.name)
    }

    fn sleeper(&self, place: &Path) -> PathBuf {
        place.join(format!("{}-sleep", self.runtime.name))
    }

    /// A command that must succeed.
    fn must(&mut self, arguments: &[&str]) -> std::io::Result<runner::Sample> {
        let sample = self.runner.run(self.runtime.words(arguments), 0)?;
        if sample.code == 0 {
            return Ok(sample);
        }
        let said = self.runner.last_error();
        Err(std::io::Error::other(format!("{} {arguments:?}: exit code {}: {said}", self.runtime.name, sample.code)))
    }
}

fn floor(arguments: &Arguments) -> Option<PathBuf> {
    let beside = || std::env::current_exe().ok().map(|program| program.with_file_name("pinion-floor"));
    arguments.floor.clone().or_else(beside).filter(|program| program.is_file())
}

/// Where runtimes and the floor keep their states.
fn states(place: &Path) -> std::io::Result<Vec<PathBuf>> {
    let directories = vec![place.join("states"), PathBuf::from(FLOORS_STATES)];
    directories.iter().try_for_each(std::fs::create_dir_all)?;
    Ok(directories)
}
