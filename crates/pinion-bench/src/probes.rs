//! `pinion-bench probes`: measures the cost of executing a command periodically in each of many containers, like exec
//! probes.

mod load;
mod turns;

use std::time::Duration;

use crate::{
    engine::{Endpoint, Engine, Failure},
    pods::Shape,
    report, run,
};
use load::Plan;
use turns::Probes;

/// Arguments of `pinion-bench probes`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Engine to measure, NAME=SOCKET or NAME=SOCKET#HANDLER; may be repeated. Ratios are those of the first to each other one. The
    /// containers of all engines run at the same time, and are probed in turn.
    #[arg(long = "engine", required = true)]
    engines: Vec<Endpoint>,
    /// Image with `true` and `sleep`; pulled if it is missing.
    #[arg(long)]
    image: String,
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
    /// Run the pods in the host network.
    #[arg(long)]
    host_network: bool,
    #[command(flatten)]
    options: run::Options,
}

/// Measures all engines and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.containers == 0 || arguments.period == 0 || arguments.seconds == 0 || arguments.rounds == 0 {
        return Err(Failure("--containers, --period, --rounds and --seconds must be at least 1".to_owned()));
    }
    let engines = Engine::connect_all(&arguments.engines, &arguments.image).await?;
    let shape = Shape::new(&arguments.image, arguments.host_network);
    let plan = Plan {
        command: arguments.command.clone(),
        period: Duration::from_millis(arguments.period),
        length: Duration::from_secs(arguments.seconds),
        timeout: arguments.timeout,
    };
    let mut probes = Probes::new(engines, shape.clone(), plan, (arguments.containers, arguments.rounds));
    let results = run::drive(&mut probes, &arguments.options).await;
    // The directory may not exist.
    let _ = std::fs::remove_dir_all(shape.logs());
    report::finish(results?, &arguments.options)
}
