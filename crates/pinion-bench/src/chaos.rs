//! `pinion-bench chaos`: kills parts of engines while pods start, and measures what is lost, what is left, and how long it takes until all is well.

mod node;
mod parts;
mod turns;

use std::collections::BTreeMap;

use crate::{engine::Failure, pods, run};
use turns::Chaos;

/// Arguments of `pinion-bench chaos`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    engines: pods::Engines,
    /// Command that starts an engine's daemon, NAME=COMMAND, for the shell; may be repeated. Without it, a supervisor such as systemd must start the
    /// daemon again after it was killed; with it, none may. The last daemon keeps running.
    #[arg(long = "start", value_name = "NAME=COMMAND", value_parser = named)]
    starts: Vec<(String, String)>,
    /// Program of an engine that is the parent of containers, NAME=PROGRAM, such as `containerd=containerd-shim-runc-v2`; may be repeated. Those of
    /// its processes are killed, too, that are parents of this run's containers; with Pinion that is the monitor of all containers.
    #[arg(long = "part", value_name = "NAME=PROGRAM", value_parser = named)]
    parts: Vec<(String, String)>,
    /// Number of rounds.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Number of pods. After the start of half of them, a part is killed.
    #[arg(long, short = 'n', default_value_t = 20)]
    pods: usize,
    /// Number of pods that are started at once.
    #[arg(long, default_value_t = 4)]
    at_once: usize,
    /// End the daemons that this run has started.
    #[arg(long)]
    end_daemons: bool,
    #[command(flatten)]
    options: run::Options,
}

fn named(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not NAME=VALUE")),
    }
}

/// Runs all rounds and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.pods < 2 || arguments.at_once == 0 || arguments.rounds == 0 {
        return Err(Failure("--pods must be at least 2, --at-once and --rounds at least 1".to_owned()));
    }
    let is_known = |name: &String| arguments.engines.engines.iter().any(|engine| engine.name == *name);
    if let Some((name, _)) = arguments.starts.iter().chain(&arguments.parts).find(|(name, _)| !is_known(name)) {
        return Err(Failure(format!("--start and --part: unknown engine {name}; name it with --engine")));
    }
    let (engines, shape) = arguments.engines.connect().await?;
    let mut chaos = Chaos {
        engines,
        shape: shape.clone(),
        pods: arguments.pods,
        at_once: arguments.at_once,
        rounds: arguments.rounds,
        starts: arguments.starts.into_iter().collect::<BTreeMap<_, _>>(),
        parts: arguments.parts.into_iter().collect::<BTreeMap<_, _>>(),
        daemons: BTreeMap::new(),
    };
    let outcome = pods::drive(&mut chaos, &shape, &arguments.options).await;
    if arguments.end_daemons {
        chaos.end_daemons();
    }
    outcome
}
