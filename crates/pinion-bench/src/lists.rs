//! `pinion-bench lists`: measures the cost of list requests of the CRI on a full node.
//!
//! Creates pods with one container and the labels of a kubelet, and then repeats every list request, first undisturbed,
//! then with one frozen and one killed container. Responses are read completely but not decoded, so that the time is
//! that of the engine and the socket.

mod call;
mod faults;
mod pod_set;
mod report;
mod rounds;

use std::path::PathBuf;

use crate::{
    engine::{Endpoint, Engine, Failure},
    machine::Machine,
    output,
    pods::Shape,
};

/// Arguments of `pinion-bench lists`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Engine to measure, NAME=SOCKET or NAME=SOCKET#HANDLER; may be repeated. Engines are measured one after the other.
    #[arg(long = "engine", required = true)]
    engines: Vec<Endpoint>,
    /// Image with `sleep`; pulled if it is missing.
    #[arg(long)]
    image: String,
    /// Number of pods with one container each.
    #[arg(long, short = 'n', default_value_t = 1000)]
    pods: usize,
    /// Number of requests for each list.
    #[arg(long, default_value_t = 200)]
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
    /// Run the pods in the host network.
    #[arg(long)]
    host_network: bool,
    /// Write all measurements to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Measures every engine and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.pods < 2 || arguments.requests == 0 || arguments.clients == 0 || arguments.in_flight == 0 {
        return Err(Failure("--pods must be at least 2, --requests, --clients and --in-flight at least 1".to_owned()));
    }
    let shape = Shape::new(&arguments.image, arguments.host_network).with_kubelet_labels();
    let mut engines = Vec::new();
    for endpoint in &arguments.engines {
        let mut engine = Engine::connect(endpoint).await?;
        engine.ensure_image(&arguments.image).await?;
        engines.push(engine);
    }
    let mut report = report::Report::new(Machine::here(), &engines, arguments.pods);
    for engine in &engines {
        let measured = measure(engine, &shape, &arguments).await;
        // The log directory is removed even if the measurement failed.
        let _ = std::fs::remove_dir_all(shape.logs());
        report.engines.push(measured?);
    }
    output::write(&report.tables(), &report, arguments.json.as_deref())
}

async fn measure(engine: &Engine, shape: &Shape, arguments: &Arguments) -> Result<report::Row, Failure> {
    let pods = pod_set::PodSet::create(engine, shape, arguments.pods, arguments.in_flight).await?;
    let pause = std::time::Duration::from_millis(arguments.pause);
    let load = rounds::Load { requests: arguments.requests, clients: arguments.clients, pause };
    let measured = async {
        let calm = rounds::run(engine, &load).await?;
        let disturbed = {
            let _frozen = faults::freeze(&pods.frozen)?;
            faults::kill(&pods.killed)?;
            rounds::run(engine, &load).await?
        };
        Ok(report::Row { engine: engine.name.clone(), version: engine.version.clone(), calm, disturbed })
    };
    let measured = measured.await;
    pods.remove(engine, arguments.in_flight).await?;
    measured
}
