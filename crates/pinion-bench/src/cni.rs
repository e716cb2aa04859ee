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
mod turns;
mod worker;

use std::{
    io::{ErrorKind, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::{block_on, engine::Failure, program::Lines, report, run};
use lists::List;
use turns::Networks;
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
    /// Number of rounds for each network and number of pods.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    #[command(flatten)]
    options: run::Options,
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

/// Runs all measurements and prints the tables.
pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.rounds == 0 || arguments.lists.is_empty() || arguments.pods.is_empty() {
        return Err(Failure("--rounds must be at least 1, and --lists and --pods not empty".to_owned()));
    }
    let Arguments { plugins, lists, pods, rounds, options } = arguments;
    let mut networks = Networks::new(plugins, lists, pods, rounds);
    block_on(async {
        let results = run::drive(&mut networks, &options).await;
        report::finish(results?, &options)
    })
}

/// Timeout of a request, and what is added to it for each pod.
const TIMEOUT: Duration = Duration::from_secs(60);
const POD_TIMEOUT: Duration = Duration::from_secs(2);

/// A node with one way to attach pods.
struct Worker {
    process: Child,
    requests: ChildStdin,
    responses: Lines,
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
            // An interrupt from the terminal is to end the run after this turn, not the worker.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (requests, responses) = pipes.ok_or_else(|| Failure("start a worker: no pipes".to_owned()))?;
        Ok(Self { process, requests, responses: Lines::of(responses).map_err(failed)? })
    }

    /// Sends a request and waits for the response, for some time for each of `pods`; the worker reports errors itself.
    fn request<T: for<'a> Deserialize<'a>>(&mut self, request: &str, pods: u32) -> Result<T, Failure> {
        let failed = |error: std::io::Error| Failure(format!("{request}: {error}"));
        writeln!(self.requests, "{request}").map_err(failed)?;
        let line =
            self.responses.next(TIMEOUT + POD_TIMEOUT.saturating_mul(pods)).map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => Failure(format!("{request}: the worker failed")),
                _ => failed(error),
            })?;
        serde_json::from_str(&line).map_err(|error| Failure(format!("{request}: {error}")))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // With the plugin for which it may wait.
        let _ = kill_process_group(Pid::from_child(&self.process), Signal::KILL);
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
