//! `pinion-bench bucket`: threads that each run, stop and delete pods, one after the other, as bucketbench does.

mod turns;

use crate::{
    engine::{Endpoint, Engine, Failure},
    pods::Shape,
    report, run,
};
use turns::Bucket;

/// Arguments of `pinion-bench bucket`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Engine to measure, NAME=SOCKET or NAME=SOCKET#HANDLER; may be repeated. Ratios are those of the first to each other one.
    #[arg(long = "engine", required = true)]
    engines: Vec<Endpoint>,
    /// Image with `sleep`; pulled if it is missing.
    #[arg(long)]
    image: String,
    /// Numbers of threads, each with one pod at a time.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3])]
    threads: Vec<usize>,
    /// Number of pods of a thread in a turn.
    #[arg(long, default_value_t = 15)]
    iterations: usize,
    /// Number of rounds. The engines take turns in each, and none is always the first.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Run the pods in the host network.
    #[arg(long)]
    host_network: bool,
    #[command(flatten)]
    options: run::Options,
}

/// Runs all rounds and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.threads.contains(&0) || arguments.iterations == 0 || arguments.rounds == 0 {
        return Err(Failure("--threads, --iterations and --rounds must be at least 1".to_owned()));
    }
    let engines = Engine::connect_all(&arguments.engines, &arguments.image).await?;
    let shape = Shape::new(&arguments.image, arguments.host_network);
    let mut bucket = Bucket {
        engines,
        shape: shape.clone(),
        threads: arguments.threads.clone(),
        iterations: arguments.iterations,
        rounds: arguments.rounds,
        image: arguments.image.clone(),
    };
    let results = run::drive(&mut bucket, &arguments.options).await;
    // The directory may not exist.
    let _ = std::fs::remove_dir_all(shape.logs());
    report::finish(results?, &arguments.options)
}
