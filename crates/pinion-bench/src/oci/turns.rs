//! The turns of a runtime: containers of `true`, and the commands of containers that sleep.

use std::{collections::BTreeMap, io, path::PathBuf, time::Duration};

use super::{
    Arguments, Contestant,
    bundle::Bundle,
    memory,
    runner::{Runner, RunnerArguments, Sample},
    syscalls,
};
use crate::{
    engine::Failure,
    results::{self, Description, Metric, TurnLog},
    run::Scenario,
    statistics::ROUNDS_MIN,
};

const RUN: &str = "run true";
const RUN_CPU: &str = "run true, CPU";
const RUN_SWITCHES: &str = "run true, context switches";
const RUN_DISK: &str = "run true, written to disk";
const IDLE: &str = "run true after 100 ms of idle";
const EXEC: &str = "exec true";
const EXEC_CPU: &str = "exec true, CPU";
const MOUNTS: &str = "run true, host mounts";
const CALLS: &str = "system calls of run true";
const PROCESSES: &str = "processes and threads of run true";
const MEMORY: &str = "lowest memory limit";
/// The commands of a container's life cycle, in their order.
const LIFE: [&str; 5] = ["create", "start", "state", "kill", "delete"];

/// Runs before a measurement.
const WARMUP: usize = 2;
/// Idle time before a run, in milliseconds.
const IDLE_MS: u64 = 100;
/// Attempts to delete a container that was killed, and the time between two of them.
const DELETIONS: usize = 200;
const DELETION_PERIOD: Duration = Duration::from_millis(5);

/// The life cycle of containers with OCI runtimes.
pub(super) struct Runs {
    contestants: Vec<Contestant>,
    base: Bundle,
    work_dir: PathBuf,
    /// Numbers of additional mounts.
    mounts: Vec<usize>,
    rounds: usize,
    runs: usize,
    others: usize,
    searches_memory: bool,
    /// Number of containers so far. Each has an id of its own, so that one that is left over does not make others fail.
    containers: usize,
}

impl Runs {
    pub(super) fn new(contestants: Vec<Contestant>, base: Bundle, work_dir: PathBuf, arguments: &Arguments) -> Self {
        Self {
            contestants,
            base,
            work_dir,
            mounts: arguments.mounts.iter().copied().filter(|mounts| *mounts > 0).collect(),
            rounds: arguments.rounds,
            runs: arguments.runs,
            others: arguments.others,
            searches_memory: !arguments.no_memory,
            containers: 0,
        }
    }

    /// Starts a runner with additional mounts.
    fn runner_with(&self, mounts: usize, contestant: &Contestant) -> io::Result<Runner> {
        let directory = self.work_dir.join("mounts");
        std::fs::create_dir_all(&directory)?;
        let arguments = RunnerArguments {
            hide_v2: contestant.hide_v2,
            states: super::states(&self.work_dir)?,
            mounts,
            place: Some(directory),
        };
        Runner::start(&arguments, self.work_dir.join(format!("{}.errors", contestant.runtime.name)))
    }

    /// Runs `true` a number of times.
    async fn run_true(
        &mut self,
        index: usize,
        (count, idle_ms): (usize, u64),
        mut each: impl FnMut(Result<Sample, String>),
    ) {
        for _ in 0..count {
            // An interrupt ends the turn between two containers.
            tokio::task::yield_now().await;
            self.containers += 1;
            let id = format!("bench-{}", self.containers);
            let contestant = &mut self.contestants[index];
            if contestant.is_stuck {
                return;
            }
            let words = contestant.runtime.run(&contestant.bundle(&self.work_dir), &contestant.group, &id);
            let sample = contestant.sample(words, idle_ms);
            if sample.is_err() {
                contestant.discard(&id);
            }
            each(sample);
        }
    }

    async fn commands(&mut self, contestant: usize, log: &mut TurnLog) {
        if self.others == 0 || self.contestants[contestant].is_stuck {
            return;
        }
        self.containers += 1;
        let id = format!("bench-{}", self.containers);
        let contestant = &mut self.contestants[contestant];
        let bundle = contestant.sleeper(&self.work_dir).to_string_lossy().into_owned();
        if let Err(error) = contestant.must(&["run", "--detach", "--bundle", &bundle, &id]) {
            log.fail(EXEC, None, &error.to_string());
            contestant.discard(&id);
            return;
        }
        for _ in 0..self.others {
            tokio::task::yield_now().await;
            if contestant.is_stuck {
                break;
            }
            let words = contestant.runtime.command(&["exec", &id, "true"]);
            match contestant.sample(words, 0) {
                Ok(sample) => {
                    log.add(EXEC, None, sample.wall_us / 1000.0);
                    log.add(EXEC_CPU, None, sample.cpu_us as f64 / 1000.0);
                }
                Err(cause) => log.fail(EXEC, None, &cause),
            }
        }
        contestant.discard(&id);
    }

    async fn lives(&mut self, contestant: usize, log: &mut TurnLog) {
        let contestant = &mut self.contestants[contestant];
        let bundle = contestant.sleeper(&self.work_dir).to_string_lossy().into_owned();
        for _ in 0..self.others {
            tokio::task::yield_now().await;
            if contestant.is_stuck {
                return;
            }
            self.containers += 1;
            let id = format!("bench-{}", self.containers);
            let mut steps = LIFE.iter();
            let mut step = || steps.next().copied().unwrap_or("delete");
            let lived = life(contestant, &bundle, &id, |sample| log.add(step(), None, sample.wall_us / 1000.0));
            if let Err(error) = lived {
                log.fail(step(), None, &error.to_string());
                contestant.discard(&id);
            }
        }
    }

    /// Runs `true` in mount namespaces with many mounts, which exist only in the meantime.
    async fn with_mounts(&mut self, contestant: usize, log: &mut TurnLog) {
        for mounts in self.mounts.clone() {
            let parameter = Some(mounts as f64);
            let runner = match self.runner_with(mounts, &self.contestants[contestant]) {
                Ok(runner) => runner,
                Err(error) => {
                    log.fail(MOUNTS, parameter, &error.to_string());
                    continue;
                }
            };
            let usual = std::mem::replace(&mut self.contestants[contestant].runner, runner);
            // The first runs set up the mounts and the state that a runtime caches.
            self.run_true(contestant, (WARMUP, 0), |_| {}).await;
            self.run_true(contestant, (self.others, 0), |sample| match sample {
                Ok(sample) => log.add(MOUNTS, parameter, sample.wall_us / 1000.0),
                Err(cause) => log.fail(MOUNTS, parameter, &cause),
            })
            .await;
            self.contestants[contestant].runner = usual;
        }
    }

    /// Counts the system calls of a run.
    fn count_calls(&mut self, contestant: usize, log: &mut TurnLog) {
        let contestant = &mut self.contestants[contestant];
        match syscalls::count(contestant, &self.work_dir) {
            Ok(Some(counts)) => {
                log.add(CALLS, None, counts.calls as f64);
                log.add(PROCESSES, None, counts.clones as f64);
            }
            Ok(None) => {}
            Err(error) => log.fail(CALLS, None, &error.to_string()),
        }
    }

    fn search_memory(&mut self, contestant: usize, log: &mut TurnLog) {
        match memory::lowest(&mut self.contestants[contestant], &self.base) {
            Ok(Some(kib)) => log.add(MEMORY, None, kib as f64),
            Ok(None) => {}
            Err(error) => log.fail(MEMORY, None, &error.to_string()),
        }
    }
}

/// Creates, starts, queries, kills and deletes a container that sleeps, and passes the measurement of each step.
fn life(contestant: &mut Contestant, bundle: &str, id: &str, mut each: impl FnMut(Sample)) -> io::Result<()> {
    each(contestant.must(&["create", "--bundle", bundle, id])?);
    each(contestant.must(&["start", id])?);
    each(contestant.must(&["state", id])?);
    each(contestant.must(&["kill", id, "KILL"])?);
    // Engines are notified of the exit of a container. Here `delete` is repeated until it succeeds; failed attempts are not measured.
    let mut result = contestant.must(&["delete", id]);
    for _ in 0..DELETIONS {
        if result.is_ok() || contestant.is_stuck {
            break;
        }
        std::thread::sleep(DELETION_PERIOD);
        result = contestant.must(&["delete", id]);
    }
    each(result?);
    Ok(())
}

impl Contestant {
    /// Runs a program that must succeed.
    pub(super) fn sample(&mut self, words: Vec<String>, idle_ms: u64) -> Result<Sample, String> {
        let sample = self.runner.run(words, idle_ms).map_err(|error| error.to_string())?;
        self.is_stuck |= sample.has_timed_out;
        if sample.has_timed_out {
            return Err("it did not end in time".to_owned());
        }
        if sample.code == 0 {
            Ok(sample)
        } else {
            Err(format!("exit code {}: {}", sample.code, self.runner.last_error()))
        }
    }

    /// Deletes what a container left, if anything.
    pub(super) fn discard(&mut self, id: &str) {
        let words = self.runtime.removal(id);
        if !words.is_empty() {
            let _ = self.sample(words, 0);
        }
    }

    fn describe(&self) -> results::Contestant {
        let configuration = if self.hide_v2 { "in a mount namespace without cgroup v2" } else { "command line" };
        results::Contestant::new(&self.runtime.name, &self.runtime.version, configuration)
    }
}

impl Scenario for Runs {
    fn description(&self) -> Description {
        let mut metrics = vec![Metric::lower(RUN, "ms").headline(), Metric::lower(RUN_CPU, "ms")];
        metrics.extend([Metric::lower(RUN_SWITCHES, ""), Metric::lower(RUN_DISK, "KiB")]);
        metrics.extend([IDLE, EXEC, EXEC_CPU].map(|name| Metric::lower(name, "ms")));
        metrics.extend(LIFE.map(|name| Metric::lower(name, "ms")));
        metrics.push(Metric::lower(MOUNTS, "ms"));
        metrics.extend([CALLS, PROCESSES].map(|name| Metric::lower(name, "")));
        metrics.push(memory::metric(MEMORY));
        let settings = [
            ("runs of `true` in a turn", self.runs.to_string()),
            ("other commands in a turn", self.others.to_string()),
            ("additional host mounts", self.mounts.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
        ];
        Description {
            name: "oci".to_owned(),
            title: "OCI runtimes at the command line".to_owned(),
            work: "A container of `true` with new namespaces, cgroup limits, Docker's default seccomp profile and masked paths; then exec, and the \
                   commands of a container that sleeps. The lowest memory limit, at which five of them succeed, is searched to the page or to 1.6 %, in \
                   the first six rounds."
                .to_owned(),
            parameter: "additional host mounts".to_owned(),
            common: "Commands".to_owned(),
            settings: BTreeMap::from(settings.map(|(name, value)| (name.to_owned(), value))),
            metrics,
            contestants: self.contestants.iter().map(Contestant::describe).collect(),
            rounds: self.rounds,
        }
    }

    async fn warm_up(&mut self, contestant: usize) -> Result<(), Failure> {
        let mut failure = None;
        self.run_true(contestant, (WARMUP, 0), |sample| failure = failure.take().or(sample.err())).await;
        failure.map_or(Ok(()), |cause| Err(Failure(format!("{}: {cause}", self.contestants[contestant].runtime.name))))
    }

    async fn clean_up(&mut self) {}

    async fn turn(&mut self, contestant: usize, round: usize, log: &mut TurnLog) {
        self.contestants[contestant].is_stuck = false;
        let (runs, others) = (self.runs, self.others);
        self.run_true(contestant, (runs, 0), |sample| match sample {
            Ok(sample) => {
                log.add(RUN, None, sample.wall_us / 1000.0);
                log.add(RUN_CPU, None, sample.cpu_us as f64 / 1000.0);
                log.add(RUN_SWITCHES, None, sample.context_switches as f64);
                log.add(RUN_DISK, None, sample.written_bytes as f64 / 1024.0);
            }
            Err(cause) => log.fail(RUN, None, &cause),
        })
        .await;
        self.run_true(contestant, (others, IDLE_MS), |sample| match sample {
            Ok(sample) => log.add(IDLE, None, sample.wall_us / 1000.0),
            Err(cause) => log.fail(IDLE, None, &cause),
        })
        .await;
        if self.contestants[contestant].runtime.is_oci() {
            self.commands(contestant, log).await;
            self.lives(contestant, log).await;
        }
        self.with_mounts(contestant, log).await;
        self.count_calls(contestant, log);
        if round < ROUNDS_MIN && self.searches_memory && !self.contestants[contestant].is_stuck {
            self.search_memory(contestant, log);
        }
    }
}
