//! `pinion-bench burst`: starts many pods one after the other and at once, while the engine is polled as by a kubelet.

mod poll;
mod turns;

use std::time::Duration;

use crate::{engine::Failure, pods, run};
use turns::Burst;

/// Arguments of `pinion-bench burst`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    engines: pods::Engines,
    /// Number of rounds. The engines take turns in each, and none is always the first.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Number of pods of a burst, or that of --at-once if it is higher.
    #[arg(long, short = 'n', default_value_t = 100)]
    pods: usize,
    /// Numbers of pods that are started at once, and later removed at once; 1 is one after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100])]
    at_once: Vec<usize>,
    /// Milliseconds between two polls of the engine. A kubelet lists pods and containers once a second.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..))]
    poll: u64,
    #[command(flatten)]
    options: run::Options,
}

/// Runs all rounds and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.at_once.contains(&0) || arguments.pods == 0 || arguments.rounds == 0 {
        return Err(Failure("--rounds, --pods and --at-once must be at least 1".to_owned()));
    }
    let (engines, shape) = arguments.engines.connect().await?;
    let shape = shape.with_kubelet_labels();
    let mut burst = Burst {
        engines,
        shape: shape.clone(),
        at_once: arguments.at_once.clone(),
        pods: arguments.pods,
        rounds: arguments.rounds,
        period: Duration::from_millis(arguments.poll),
    };
    pods::drive(&mut burst, &shape, &arguments.options).await
}
