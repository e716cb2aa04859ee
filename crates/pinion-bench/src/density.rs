//! `pinion-bench density`: starts pods until memory ends, or until a given part of it is used.

mod memory;
mod turns;

use crate::{engine::Failure, pods, run};
use turns::Density;

/// Arguments of `pinion-bench density`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    engines: pods::Engines,
    /// Memory that the pods of an engine may take, in MiB [default: what is available, less a tenth of the machine's memory]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    budget: Option<u64>,
    /// Most pods of an engine.
    #[arg(long, default_value_t = 10_000)]
    most: usize,
    /// Number of pods that are started, and later removed, at once.
    #[arg(long, default_value_t = 4)]
    at_once: usize,
    /// Number of rounds. The engines take turns in each, and none is always the first.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    #[command(flatten)]
    options: run::Options,
}

/// Runs all rounds and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.most == 0 || arguments.at_once == 0 || arguments.rounds == 0 {
        return Err(Failure("--most, --at-once and --rounds must be at least 1".to_owned()));
    }
    let (engines, shape) = arguments.engines.connect().await?;
    let mut density = Density {
        engines,
        shape: shape.clone(),
        budget_kib: arguments.budget.map(|mib| mib << 10),
        most: arguments.most,
        at_once: arguments.at_once,
        rounds: arguments.rounds,
    };
    pods::drive(&mut density, &shape, &arguments.options).await
}
