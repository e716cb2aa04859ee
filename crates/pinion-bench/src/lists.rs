//! `pinion-bench lists`: measures the cost of list requests of the CRI on nodes with few and with many pods.
//!
//! Creates pods with one container and the labels of a kubelet, more of them in each phase, and repeats every list request; in the last phase
//! one container is frozen and one killed. Responses are read completely but not decoded, so that the time is that of the engine
//! and the socket.

mod call;
mod disturbed_set;
mod faults;
mod turns;

use std::time::Duration;

use crate::{engine::Failure, pods, run};
use turns::Lists;

/// Arguments of `pinion-bench lists`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    engines: pods::Engines,
    /// Numbers of pods with one container each, in ascending order.
    #[arg(long, short = 'n', value_delimiter = ',', default_values_t = [1, 10, 100, 1000])]
    pods: Vec<usize>,
    /// Number of rounds for each number of pods.
    #[arg(long, default_value_t = 6)]
    rounds: usize,
    /// Number of requests of each client for each list in a turn.
    #[arg(long, default_value_t = 20)]
    requests: usize,
    /// Number of concurrent clients, each with a separate connection.
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Time between two requests in milliseconds.
    #[arg(long, default_value_t = 20)]
    pause: u64,
    /// Number of pods that are created or removed concurrently.
    #[arg(long, default_value_t = 8)]
    in_flight: usize,
    /// Do not measure with a frozen and a killed container.
    #[arg(long)]
    only_calm: bool,
    #[command(flatten)]
    options: run::Options,
}

/// Measures all engines and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let numbers = [arguments.rounds, arguments.requests, arguments.clients, arguments.in_flight, arguments.pods.len()];
    if numbers.contains(&0) || arguments.pods.contains(&0) || !arguments.pods.is_sorted() {
        return Err(Failure("--pods must be in ascending order, and all numbers at least 1".to_owned()));
    }
    if !arguments.only_calm && arguments.pods.last().is_some_and(|pods| *pods < 2) {
        return Err(Failure(
            "--pods must be at least 2 to freeze a container and to kill another one; or --only-calm".to_owned(),
        ));
    }
    let (engines, shape) = arguments.engines.connect().await?;
    let shape = shape.with_kubelet_labels();
    // The lists of one daemon have the pods of all of its contestants.
    for (index, engine) in engines.iter().enumerate() {
        if let Some(other) = engines.iter().take(index).find(|other| other.socket() == engine.socket()) {
            return Err(Failure(format!("{} and {} are the same engine", other.name, engine.name)));
        }
    }
    let load = turns::Load {
        requests: arguments.requests,
        clients: arguments.clients,
        pause: Duration::from_millis(arguments.pause),
        in_flight: arguments.in_flight,
        rounds: arguments.rounds,
    };
    let mut lists = Lists::new(engines, shape.clone(), load, turns::phases(&arguments.pods, arguments.only_calm));
    pods::drive(&mut lists, &shape, &arguments.options).await
}
