//! `pinion-bench oci`: measures OCI runtimes with runc's command line, in turn, with the same bundle.

mod bundle;
mod command_line;
mod compare;
mod memory;
mod runner;
mod runtime;
mod syscalls;
mod turns;

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

pub(crate) use command_line::CommandLines;
pub(crate) use runner::{RunnerArguments, serve};
pub(crate) use runtime::{ClientArgument, RuntimeArgument};

use self::{
    bundle::{Bundle, Shape},
    compare::compare_with_floor,
    runner::Runner,
    runtime::Runtime,
    turns::Runs,
};
use crate::{engine::Failure, note::note, program, report, run};

/// Arguments of `pinion-bench oci`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Runtime to measure, NAME=PROGRAM; may be repeated. Ratios refer to the first.
    #[arg(long = "runtime", required = true)]
    runtimes: Vec<RuntimeArgument>,
    /// The floor program [default: pinion-floor in the directory of this program, if it exists]
    #[arg(long)]
    floor: Option<PathBuf>,
    /// Number of rounds. The runtimes take turns in each, and none is always the first.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Number of runs of `run true` in a turn.
    #[arg(long, short = 'n', default_value_t = 50)]
    runs: usize,
    /// Number of runs of `run true` after 100 ms of idle time, of `exec`, and of the other commands in a turn.
    #[arg(long, default_value_t = 5)]
    others: usize,
    /// Numbers of additional host mounts to measure with; 0 disables this measurement.
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 5000])]
    mounts: Vec<usize>,
    /// Skip the search for the lowest memory limit.
    #[arg(long)]
    no_memory: bool,
    #[command(flatten)]
    options: run::Options,
}

/// Timeout of the pull of an image by a client.
const PULL_TIMEOUT: Duration = Duration::from_secs(600);
/// State directory of the floor program.
const FLOOR_STATES: &str = "/run/pinion-floor";

/// Directory with all files of a run, which is removed at its end.
struct WorkDirectory(PathBuf);

impl WorkDirectory {
    fn create() -> std::io::Result<Self> {
        // In a PID namespace, another process may have the same id.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let parent = std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
        let directory = parent.join(format!("pinion-bench-oci-{}-{now}", std::process::id()));
        std::fs::create_dir(&directory)?;
        Ok(Self(directory))
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        // A mount that a runtime leaked is not removed, so that it can be noticed.
        let _ = std::fs::remove_dir_all(&self.0);
        let _ = std::fs::remove_dir(FLOOR_STATES);
    }
}

/// A runtime that is measured, with the process that starts it.
pub(crate) struct Contestant {
    runtime: Runtime,
    runner: Runner,
    hide_v2: bool,
    /// The value of `linux.cgroupsPath`.
    group: String,
    /// Whether a command did not end in time in this turn. Each further one would take as long.
    is_stuck: bool,
}

/// Runs the measurements and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure("must be run as root, to create containers with cgroups and networks".to_owned()));
    }
    if arguments.runs == 0 || arguments.rounds == 0 {
        return Err(Failure("--rounds and --runs must be at least 1".to_owned()));
    }
    let work_dir =
        WorkDirectory::create().map_err(|error| Failure(format!("create a directory in /var/tmp: {error}")))?;
    let mut runs = prepare_all(&arguments, &work_dir.0).map_err(|error| Failure(error.to_string()))?;
    let results = run::drive(&mut runs, &arguments.options).await;
    drop(runs);
    drop(work_dir);
    report::finish(results?, &arguments.options)
}

fn prepare_all(arguments: &Arguments, work_dir: &Path) -> std::io::Result<Runs> {
    let base = Bundle::create(work_dir.join("bundle"))?;
    let mut contestants = Vec::new();
    for named in &arguments.runtimes {
        match prepare(Runtime::new(named, &work_dir.join("states")), &base, work_dir) {
            Ok(contestant) => contestants.push(contestant),
            // Ratios are those of the first one.
            Err(error) if !contestants.is_empty() => note(&format!("pinion-bench: left out: {error}")),
            Err(error) => return Err(error),
        }
    }
    if let Some(program) = floor(arguments) {
        let filter = work_dir.join("filter");
        let program_bytes = seccomp::compile(&bundle::profile()).map_err(std::io::Error::other)?.filter;
        std::fs::write(&filter, program_bytes)?;
        contestants.push(prepare(Runtime::floor(program, base.rootfs(), filter), &base, work_dir)?);
    }
    compare_with_floor(&contestants, &base)?;
    Ok(Runs::new(contestants, base, work_dir.to_owned(), arguments))
}

/// Prepares a bundle and a runner for a runtime, and tests them. If the runtime fails because of the v2 hierarchy of a
/// hybrid machine, hides that. A client pulls its image if it fails.
fn prepare(runtime: Runtime, base: &Bundle, work_dir: &Path) -> std::io::Result<Contestant> {
    let group = format!("/pinion-bench-{}-{}", std::process::id(), runtime.name);
    let bundle = base.sibling(&runtime.name)?;
    let shape = Shape { args: &["true"], group: &group, memory: 64 << 20, seccomp: true };
    bundle.write(&bundle::spec(&shape, &base.rootfs()))?;
    let sleeper = base.sibling(&format!("{}-sleep", runtime.name))?;
    sleeper.write(&bundle::spec(
        &Shape { args: &["sleep", "100000"], group: &format!("{group}-sleep"), ..shape },
        &base.rootfs(),
    ))?;
    let errors = work_dir.join(format!("{}.errors", runtime.name));
    let mut failure = String::new();
    for hide_v2 in [false, true] {
        let arguments = RunnerArguments { hide_v2, states: states(work_dir)?, mounts: 0, place: None };
        let mut runner = Runner::start(&arguments, errors.clone())?;
        // The containers of a client have names among those of others.
        let id = format!("{}-first", work_dir.file_name().unwrap_or_default().to_string_lossy());
        let sample = runner.run(runtime.run(&bundle.directory, &group, &id), 0);
        let sample = sample.map_err(|error| std::io::Error::other(format!("run {}: {error}", runtime.name)))?;
        if sample.code == 0 {
            return Ok(Contestant { runtime, runner, hide_v2, group, is_stuck: false });
        }
        failure = format!("exit code {}: {}", sample.code, runner.last_error());
        let removal = runtime.removal(&id);
        if !removal.is_empty() {
            // The run may have left nothing.
            let _ = runner.run(removal, 0)?;
        }
        if let Some(words) = runtime.pull().filter(|_| !hide_v2) {
            let pulled = program::output(Command::new(&words[0]).args(&words[1..]), PULL_TIMEOUT);
            if let Err(error) = pulled {
                failure = format!("pull the image: {error}");
            }
        }
    }
    Err(std::io::Error::other(format!("{} cannot run the bundle: {failure}", runtime.name)))
}

impl Contestant {
    fn bundle(&self, work_dir: &Path) -> PathBuf {
        work_dir.join(&self.runtime.name)
    }

    fn sleeper(&self, work_dir: &Path) -> PathBuf {
        work_dir.join(format!("{}-sleep", self.runtime.name))
    }

    /// Runs a command that must succeed.
    fn must(&mut self, arguments: &[&str]) -> std::io::Result<runner::Sample> {
        let sample = self.sample(self.runtime.command(arguments), 0);
        sample.map_err(|cause| std::io::Error::other(format!("{} {arguments:?}: {cause}", self.runtime.name)))
    }
}

fn floor(arguments: &Arguments) -> Option<PathBuf> {
    let default = || std::env::current_exe().ok().map(|program| program.with_file_name("pinion-floor"));
    arguments.floor.clone().or_else(default).filter(|program| program.is_file())
}

/// Creates the state directories of the runtimes and the floor, and returns them.
fn states(work_dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let directories = vec![work_dir.join("states"), PathBuf::from(FLOOR_STATES)];
    directories.iter().try_for_each(std::fs::create_dir_all)?;
    Ok(directories)
}
