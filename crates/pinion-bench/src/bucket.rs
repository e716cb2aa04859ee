//! `pinion-bench bucket`: threads that each run, stop and delete pods, one after the other, as bucketbench does.

mod turns;

use crate::{engine::Failure, pods, run};
use turns::Bucket;

/// Arguments of `pinion-bench bucket`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    engines: pods::Engines,
    /// Numbers of threads, each with one pod at a time.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3])]
    threads: Vec<usize>,
    /// Number of pods of a thread in a turn.
    #[arg(long, default_value_t = 15)]
    iterations: usize,
    /// Number of rounds. The engines take turns in each, and none is always the first.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    #[command(flatten)]
    options: run::Options,
}

/// Runs all rounds and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.threads.contains(&0) || arguments.iterations == 0 || arguments.rounds == 0 {
        return Err(Failure("--threads, --iterations and --rounds must be at least 1".to_owned()));
    }
    let (engines, shape) = arguments.engines.connect().await?;
    let mut bucket = Bucket {
        engines,
        shape: shape.clone(),
        threads: arguments.threads.clone(),
        iterations: arguments.iterations,
        rounds: arguments.rounds,
    };
    pods::drive(&mut bucket, &shape, &arguments.options).await
}
