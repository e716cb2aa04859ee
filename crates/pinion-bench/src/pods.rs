//! `pinion-bench pods`: measures the life cycle of pods over the CRI.

mod density;
mod lifecycle;
mod report;
mod rounds;

use std::path::PathBuf;

pub(crate) use density::{Density, measure as measure_density};
pub(crate) use lifecycle::{RunningPod, container as container_config, pod as pod_config, remove_pod, start_pod};

use crate::{
    engine::{Endpoint, Engine, Failure},
    machine::Machine,
    output,
};

/// Arguments of `pinion-bench pods`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Engine to measure, NAME=SOCKET or NAME=SOCKET#HANDLER; may be repeated. Engines are measured interleaved.
    #[arg(long = "engine", required = true)]
    engines: Vec<Endpoint>,
    /// Image with `true` and `sleep`; pulled if it is missing.
    #[arg(long)]
    image: String,
    /// Number of pods per engine and mode.
    #[arg(long, short = 'n', default_value_t = 50)]
    pods: usize,
    /// Numbers of concurrent pods; one mode for each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8])]
    in_flight: Vec<usize>,
    /// Number of running pods for the measurement of processes and memory; 0 disables it.
    #[arg(long, default_value_t = 20)]
    density: usize,
    /// Number of pods per engine before the measurement.
    #[arg(long, default_value_t = 3)]
    warmup: usize,
    /// Run the pods in the host network.
    #[arg(long)]
    host_network: bool,
    /// Write all measurements to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The properties of the pods of a run.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    image: String,
    host_network: bool,
    /// An argument that no other process on the machine has, which identifies the processes of the pods.
    mark: String,
    /// Whether the pods have the labels and annotations of a kubelet, which are most of the content of lists.
    kubelet: bool,
}

impl Shape {
    /// Creates the shape of the pods of this run.
    pub(crate) fn new(image: &str, host_network: bool) -> Self {
        let mark = format!("{}", 1_000_000_000u64 + 10 * u64::from(std::process::id()));
        Self { image: image.to_owned(), host_network, mark, kubelet: false }
    }

    /// Adds the labels and annotations of a kubelet.
    pub(crate) fn with_kubelet_labels(self) -> Self {
        Self { kubelet: true, ..self }
    }

    /// Returns a shape with another mark, so that its processes can be identified. `number` must be below 10.
    pub(crate) fn marked(&self, number: u64) -> Self {
        let mark = self.mark.parse::<u64>().unwrap_or(0) + number;
        Self { mark: mark.to_string(), ..self.clone() }
    }

    /// Returns the mark in the command line of the processes.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// Returns the command of the containers.
    pub(crate) fn command(&self) -> Vec<String> {
        vec!["sleep".to_owned(), self.mark.clone()]
    }

    /// Returns the log directory.
    pub(crate) fn logs(&self) -> PathBuf {
        std::env::temp_dir().join(format!("pinion-bench-{}", self.mark))
    }
}

/// Runs every mode and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.in_flight.contains(&0) || arguments.pods == 0 {
        return Err(Failure("--pods and --in-flight must be at least 1".to_owned()));
    }
    let shape = Shape::new(&arguments.image, arguments.host_network);
    let mut engines = Vec::new();
    for endpoint in &arguments.engines {
        let mut engine = Engine::connect(endpoint).await?;
        engine.ensure_image(&arguments.image).await?;
        engines.push(engine);
    }
    for engine in &engines {
        for number in 0..arguments.warmup {
            lifecycle::run(engine, &shape, &format!("warm-{number}")).await?;
        }
    }
    let mut report = report::Report::new(Machine::here(), &engines);
    for in_flight in &arguments.in_flight {
        report.modes.push(rounds::run(&engines, &shape, arguments.pods, *in_flight).await?);
    }
    if arguments.density > 0 {
        for engine in &engines {
            report.density.push(density::measure(engine, &shape, arguments.density).await?);
        }
    }
    // The directory may not exist.
    let _ = std::fs::remove_dir_all(shape.logs());
    output::write(&report.tables(), &report, arguments.json.as_deref())
}
