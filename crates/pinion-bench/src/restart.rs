//! `pinion-bench restart`: measures how long a daemon takes to become ready on a node full of pods.
//!
//! Builds of the daemon are used in turn with the same pods, state directory and socket: the running one is stopped, the next one is started, and
//! the time until its `READY=1` (sd_notify(3)) is measured.

mod daemon;
mod turns;

use std::path::PathBuf;

use crate::{engine::Failure, pods::Shape, report, run};
use daemon::Daemon;
use turns::Restart;

/// Arguments of `pinion-bench restart`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Daemon to measure, NAME=PROGRAM; may be repeated. Ratios are those of the first to each other one.
    #[arg(long = "daemon", required = true)]
    daemons: Vec<Daemon>,
    /// Configuration of the daemons, with state and data directories that no other daemon uses.
    #[arg(long)]
    config: PathBuf,
    /// Socket in that configuration.
    #[arg(long)]
    socket: String,
    /// Image with `sleep`; pulled if it is missing.
    #[arg(long)]
    image: String,
    /// Numbers of pods with one container each, in ascending order.
    #[arg(long, short = 'n', value_delimiter = ',', default_values_t = [100, 1000])]
    pods: Vec<usize>,
    /// Number of rounds for each number of pods. The daemons take turns in each, and none is always the first.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Run the pods in the host network.
    #[arg(long)]
    host_network: bool,
    #[command(flatten)]
    options: run::Options,
}

/// Measures every daemon and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.rounds == 0 || arguments.pods.is_empty() || !arguments.pods.is_sorted() {
        return Err(Failure("--pods must be in ascending order, and --rounds at least 1".to_owned()));
    }
    let shape = Shape::new(&arguments.image, arguments.host_network).with_kubelet_labels();
    let options = arguments.options.clone();
    let mut restart = Restart::new(arguments, shape.clone());
    let results = run::drive(&mut restart, &options).await;
    // The directory may not exist.
    let _ = std::fs::remove_dir_all(shape.logs());
    report::finish(results?, &options)
}
