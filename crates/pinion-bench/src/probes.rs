//! `pinion-bench probes`: measures the cost of executing a command periodically in each of many containers, like exec
//! probes.

mod load;
mod turns;

use std::time::Duration;

use crate::{engine::Failure, pods, run};
use load::Plan;
use turns::Probes;

/// Arguments of `pinion-bench probes`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    engines: pods::Engines,
    /// Number of containers, each in a separate pod.
    #[arg(long, short = 'n', default_value_t = 100)]
    containers: usize,
    /// Interval of the probes of a container in milliseconds.
    #[arg(long, default_value_t = 1000)]
    period: u64,
    /// Number of rounds. The engines take turns in each, and none is always the first.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Duration of a turn in seconds.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Timeout of a probe in seconds.
    #[arg(long, default_value_t = 1)]
    timeout: i64,
    /// Command of the probes, word by word [default: true]
    #[arg(long, default_values_t = ["true".to_owned()])]
    command: Vec<String>,
    #[command(flatten)]
    options: run::Options,
}

/// Measures all engines and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.containers == 0 || arguments.period == 0 || arguments.seconds == 0 || arguments.rounds == 0 {
        return Err(Failure("--containers, --period, --rounds and --seconds must be at least 1".to_owned()));
    }
    let (engines, shape) = arguments.engines.connect().await?;
    let plan = Plan {
        command: arguments.command.clone(),
        period: Duration::from_millis(arguments.period),
        length: Duration::from_secs(arguments.seconds),
        timeout: arguments.timeout,
    };
    let mut probes = Probes::new(engines, shape.clone(), plan, (arguments.containers, arguments.rounds));
    pods::drive(&mut probes, &shape, &arguments.options).await
}
