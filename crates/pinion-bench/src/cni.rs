//! `pinion-bench cni`: attaching pods to networks and detaching them, in the process of the engine and by the programs of CNI
//! plugins, with the same configurations.
//!
//! ```text
//! pinion-bench cni ─┬─▶ cni-worker engine     crate `network`, as the daemon uses it
//!                   └─▶ cni-worker programs   runs each plugin of a list, as libcni does
//! ```
//! Each worker is a node of its own: a network namespace, and a mount namespace with an empty `/run`. So nothing is left, even if
//! it is killed. The workers take turns in each round.

mod attach;
mod engine;
mod lists;
mod programs;
mod report;
mod worker;

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde::{Deserialize, Serialize};

use crate::{engine::Failure, machine::Machine, output};
use lists::List;
pub(crate) use worker::{WorkerArguments, run as run_worker};

/// Arguments of `pinion-bench cni`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Directory with the programs of the CNI plugins.
    #[arg(long, default_value = "/opt/cni/bin")]
    plugins: PathBuf,
    /// Networks to measure.
    #[arg(long, short = 'l', value_delimiter = ',', value_enum, default_values_t = List::ALL)]
    lists: Vec<List>,
    /// Numbers of pods that are attached already.
    #[arg(long, short = 'p', value_delimiter = ',', default_values_t = [0])]
    pods: Vec<usize>,
    /// Number of rounds.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Write all measurements to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Who attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Attacher {
    /// The engine, in its process.
    Engine,
    /// Programs.
    Programs,
}

/// One pod, attached and detached.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Cycle {
    attach_ms: f64,
    detach_ms: f64,
    /// From the response to the detachment until nothing is left of the pod.
    settle_ms: f64,
}

/// Runs all measurements and prints the table.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.rounds == 0 {
        return Err(Failure("--rounds must be at least 1".to_owned()));
    }
    let mut report = report::Report::new(Machine::here(), arguments.rounds);
    for list in &arguments.lists {
        for pods in &arguments.pods {
            report.cases.push(measure(arguments, *list, *pods)?);
        }
    }
    output::write(&report.table(), &report, arguments.json.as_deref())
}

fn measure(arguments: &Arguments, list: List, pods: usize) -> Result<report::Case, Failure> {
    let mut workers = Vec::new();
    for attacher in [Attacher::Engine, Attacher::Programs] {
        let mut worker = Worker::start(attacher, list, &arguments.plugins)?;
        worker.request::<()>(&format!("fill {pods}"))?;
        // The first pod makes the bridge and the tables.
        worker.request::<Cycle>("cycle")?;
        workers.push(worker);
    }
    let mut case = report::Case { list, pods, engine: Vec::new(), programs: Vec::new() };
    for round in 0..arguments.rounds {
        // Neither is always the first.
        for index in [round % 2, 1 - round % 2] {
            let cycle = workers[index].request("cycle")?;
            if index == 0 { case.engine.push(cycle) } else { case.programs.push(cycle) }
        }
    }
    Ok(case)
}

/// A node with one way to attach pods.
struct Worker {
    process: Child,
    requests: ChildStdin,
    responses: BufReader<ChildStdout>,
}

impl Worker {
    fn start(attacher: Attacher, list: List, plugins: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure(format!("start a worker: {error}"));
        let mut process = Command::new(std::env::current_exe().map_err(failed)?)
            .arg("cni-worker")
            .args(["--attacher", attacher.name(), "--list", list.name()])
            .arg("--plugins")
            .arg(plugins)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (requests, responses) = pipes.ok_or_else(|| Failure("start a worker: no pipes".to_owned()))?;
        Ok(Self { process, requests, responses: BufReader::new(responses) })
    }

    /// Sends a request and waits for the response; the worker reports errors itself.
    fn request<T: for<'a> Deserialize<'a>>(&mut self, request: &str) -> Result<T, Failure> {
        let failed = |error: std::io::Error| Failure(format!("{request}: {error}"));
        writeln!(self.requests, "{request}").map_err(failed)?;
        let mut line = String::new();
        if self.responses.read_line(&mut line).map_err(failed)? == 0 {
            return Err(Failure(format!("{request}: the worker failed")));
        }
        serde_json::from_str(&line).map_err(|error| Failure(format!("{request}: {error}")))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Attacher {
    fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Programs => "programs",
        }
    }
}
