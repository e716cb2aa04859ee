//! `pinion-bench pods`: measures the life cycle of pods over the CRI.

mod density;
mod engines;
mod leftovers;
mod lifecycle;
mod set;
mod shape;
mod turns;

pub(crate) use density::measure as measure_density;
pub(crate) use engines::{Engines, drive};
pub(crate) use leftovers::remove_leftovers;
pub(crate) use lifecycle::{
    Life, RunningPod, STEPS, begin, container as container_config, end, force_remove, pod as pod_config,
};
pub(crate) use set::PodSet;
pub(crate) use shape::Shape;
pub(crate) use turns::contestant;

use crate::{engine::Failure, run};
use turns::Pods;

/// Arguments of `pinion-bench pods`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    engines: Engines,
    /// Number of rounds. The engines take turns in each, and none is always the first.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Number of pods of a turn for each number of --in-flight, or that number if it is higher.
    #[arg(long, short = 'n', default_value_t = 5)]
    pods: usize,
    /// Numbers of concurrent pods; 0 disables the measurement of their lives.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8])]
    in_flight: Vec<usize>,
    /// Number of pods of a turn that are all started, measured (processes and memory), and all removed; 0 disables this.
    #[arg(long, default_value_t = 10)]
    density: usize,
    /// Number of pods per engine before the measurement.
    #[arg(long, default_value_t = 3)]
    warmup: usize,
    #[command(flatten)]
    options: run::Options,
}

/// Runs all rounds and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.pods == 0 || arguments.rounds == 0 {
        return Err(Failure("--rounds and --pods must be at least 1".to_owned()));
    }
    if arguments.in_flight.iter().all(|pods| *pods == 0) && arguments.density == 0 {
        return Err(Failure("--in-flight 0 and --density 0: nothing to measure".to_owned()));
    }
    let (engines, shape) = arguments.engines.connect().await?;
    let mut pods = Pods::new(engines, shape.clone(), &arguments);
    drive(&mut pods, &shape, &arguments.options).await
}
