//! `pinion-bench pods`: whole lives of pods through the CRI.

mod density;
mod life;
mod report;
mod rounds;

use std::path::PathBuf;

pub(crate) use life::{Alive, begin, end};

use crate::{
    engine::{Endpoint, Engine, Failure},
    machine::Machine,
};

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// An engine: NAME=SOCKET; several are measured in turn, interleaved.
    #[arg(long = "engine", required = true)]
    engines: Vec<Endpoint>,
    /// Image with `true` and `sleep`; pulled where it is missing.
    #[arg(long)]
    image: String,
    /// Pods per engine and mode.
    #[arg(long, short = 'n', default_value_t = 50)]
    pods: usize,
    /// How many pods at a time: a mode for each number.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8])]
    in_flight: Vec<usize>,
    /// Pods that live at once while processes and memory are counted; 0 leaves it out.
    #[arg(long, default_value_t = 20)]
    density: usize,
    /// Lives per engine before anything counts.
    #[arg(long, default_value_t = 3)]
    warmup: usize,
    /// Pods in the host's network, without any network set-up.
    #[arg(long)]
    host_network: bool,
    /// Write every figure to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// How every pod of a run looks.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    image: String,
    host_network: bool,
    /// An argument that no other process of the machine has: it tells the users' processes.
    mark: String,
    /// With the labels and annotations that a kubelet gives its pods: they are most of what a list is made of.
    kubelet: bool,
}

impl Shape {
    /// Of pods that no other run has.
    pub(crate) fn new(image: &str, host_network: bool) -> Self {
        let mark = format!("{}", 1_000_000_000u64 + 10 * u64::from(std::process::id()));
        Self { image: image.to_owned(), host_network, mark, kubelet: false }
    }

    /// The same, with a kubelet's labels and annotations.
    pub(crate) fn named_as_by_a_kubelet(self) -> Self {
        Self { kubelet: true, ..self }
    }

    /// The same, whose processes can be told from the others'; `number` is below 10.
    pub(crate) fn marked(&self, number: u64) -> Self {
        let mark = self.mark.parse::<u64>().unwrap_or(0) + number;
        Self { mark: mark.to_string(), ..self.clone() }
    }

    /// What tells their processes.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// What the users' processes run.
    pub(crate) fn command(&self) -> Vec<String> {
        vec!["sleep".to_owned(), self.mark.clone()]
    }

    /// Where engines write their logs.
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
            life::live(engine, &shape, &format!("warm-{number}")).await?;
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
    // Engines that never made it have left nothing to remove.
    let _ = std::fs::remove_dir_all(shape.logs());
    println!("{}", report.tables().trim_end());
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report).map_err(|e| Failure(format!("encode the report: {e}")))?;
        std::fs::write(path, text).map_err(|e| Failure(format!("write {}: {e}", path.display())))?;
    }
    Ok(())
}
