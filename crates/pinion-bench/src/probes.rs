//! `pinion-bench probes`: measures the cost of executing a command periodically in each of many containers, like exec
//! probes.

mod load;
mod report;

use std::{path::PathBuf, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    engine::{Endpoint, Engine, Failure},
    machine::Machine,
    output,
    pods::{RunningPod, Shape, remove_pod, start_pod},
};

/// Number of pods that are created or removed concurrently.
const IN_FLIGHT: usize = 8;

/// Arguments of `pinion-bench probes`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Engine to measure, NAME=SOCKET or NAME=SOCKET#HANDLER; may be repeated. Engines are measured one after the other.
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
    /// Duration of the measurement in seconds.
    #[arg(long, default_value_t = 120)]
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
    /// Write all measurements to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Measures every engine and prints the table.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.containers == 0 || arguments.period == 0 || arguments.seconds == 0 {
        return Err(Failure("--containers, --period and --seconds must be at least 1".to_owned()));
    }
    let shape = Shape::new(&arguments.image, arguments.host_network);
    let mut report = report::Report::new(Machine::here(), &arguments);
    for endpoint in &arguments.engines {
        let mut engine = Engine::connect(endpoint).await?;
        engine.ensure_image(&arguments.image).await?;
        let measured = measure(&engine, &shape, &arguments).await;
        // The log directory is removed even if the measurement failed.
        let _ = std::fs::remove_dir_all(shape.logs());
        report.engines.push(measured?);
    }
    output::write(&report.table(), &report, arguments.json.as_deref())
}

async fn measure(engine: &Engine, shape: &Shape, arguments: &Arguments) -> Result<report::Row, Failure> {
    let before = crate::process::Processes::now();
    let create = |number: usize| async move { start_pod(engine, shape, &format!("probe-{number}")).await };
    let created: Vec<Result<RunningPod, Failure>> =
        stream::iter((0..arguments.containers).map(create)).buffer_unordered(IN_FLIGHT).collect().await;
    let (mut pods, mut failure) = (Vec::new(), None);
    for result in created {
        match result {
            Ok(pod) => pods.push(pod),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let measured = match failure {
        None => {
            let plan = load::Plan {
                containers: pods.iter().map(|pod| pod.container().to_owned()).collect(),
                command: arguments.command.clone(),
                period: Duration::from_millis(arguments.period),
                length: Duration::from_secs(arguments.seconds),
                timeout: arguments.timeout,
                user: shape.command().join(" "),
            };
            Ok(load::run(engine, &plan, &before).await)
        }
        Some(failure) => Err(failure),
    };
    let removals = stream::iter(pods.into_iter().map(|pod| remove_pod(engine, pod)));
    removals.buffer_unordered(IN_FLIGHT).try_collect::<()>().await?;
    measured
}
