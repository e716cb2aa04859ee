//! `pinion-bench runtimes`: containers of `true`, run by each runtime through engines and at the command line, in turn.

mod contestant;
mod engine_run;
mod memory;
mod report;
mod rounds;

use std::path::PathBuf;

use self::{contestant::Contestants, report::Report};
use crate::{
    engine::{Endpoint, Engine, Failure},
    machine::Machine,
    oci::RuntimeArgument,
    output,
    pods::{Shape, measure_density},
};

/// Arguments of `pinion-bench runtimes`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Engine to measure, NAME=SOCKET, NAME=SOCKET#HANDLER or NAME=SOCKET#HANDLER@IMAGE; may be repeated.
    #[arg(long = "engine")]
    engines: Vec<Endpoint>,
    /// Runtime to measure at the command line, NAME=PROGRAM; may be repeated.
    #[arg(long = "runtime")]
    runtimes: Vec<RuntimeArgument>,
    /// Image with `true` and `sleep` for the engines; pulled if it is missing.
    #[arg(long)]
    image: String,
    /// Number of containers of each engine and runtime.
    #[arg(long, short = 'n', default_value_t = 1000)]
    runs: usize,
    /// Number of containers that one of them runs before it is the turn of the next.
    #[arg(long, default_value_t = 10)]
    batch: usize,
    /// Number of running pods for the measurement of processes and memory; 0 disables it.
    #[arg(long, default_value_t = 10)]
    density: usize,
    /// Skip the search for the lowest memory limit.
    #[arg(long)]
    no_memory: bool,
    /// Write all measurements to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Measures everything and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.engines.is_empty() && arguments.runtimes.is_empty() {
        return Err(Failure("name at least one engine (--engine) or runtime (--runtime)".to_owned()));
    }
    if arguments.runs == 0 || arguments.batch == 0 {
        return Err(Failure("--runs and --batch must be at least 1".to_owned()));
    }
    let shape = Shape::new(&arguments.image, false);
    let mut engines = Vec::new();
    for endpoint in &arguments.engines {
        let mut engine = Engine::connect(endpoint).await?;
        engine.ensure_image(&arguments.image).await?;
        if let Some(image) = &endpoint.image {
            engine.ensure_image(image).await?;
        }
        engines.push(engine);
    }
    let mut contestants = Contestants::prepare(&engines, &shape, &arguments.runtimes).await?;
    let measured = measure(&arguments, &mut contestants).await;
    contestants.remove().await?;
    let mut report = measured?;
    if arguments.density > 0 {
        for engine in &engines {
            report.density.push(measure_density(engine, &shape, arguments.density, "dense").await?);
        }
    }
    // The directory may not exist.
    let _ = std::fs::remove_dir_all(shape.logs());
    output::write(&report.tables(), &report, arguments.json.as_deref())
}

async fn measure(arguments: &Arguments, contestants: &mut Contestants) -> Result<Report, Failure> {
    // The first containers fill caches.
    rounds::run(contestants, 3, 3).await?;
    let mut rows = rounds::run(contestants, arguments.runs, arguments.batch).await?;
    if !arguments.no_memory {
        let limits = memory::lowest(contestants).await?;
        rows.iter_mut().zip(limits).for_each(|(row, limit)| row.memory_kib = limit);
    }
    Ok(Report { machine: Machine::here(), rows, density: Vec::new() })
}
