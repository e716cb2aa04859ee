//! `pinion-bench probes`: what it costs to have a command in each of many containers run again and again, as exec
//! probes do.

mod load;
mod report;

use std::{path::PathBuf, time::Duration};

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::{
    engine::{Endpoint, Engine, Failure},
    machine::Machine,
    pods::{Alive, Shape, begin, end},
};

/// How many pods are made and removed at a time.
const IN_FLIGHT: usize = 8;

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// An engine: NAME=SOCKET; several are measured one after the other.
    #[arg(long = "engine", required = true)]
    engines: Vec<Endpoint>,
    /// Image with `true` and `sleep`; pulled where it is missing.
    #[arg(long)]
    image: String,
    /// Containers, each in a pod of its own.
    #[arg(long, short = 'n', default_value_t = 100)]
    containers: usize,
    /// Milliseconds from one probe of a container to its next.
    #[arg(long, default_value_t = 1000)]
    period: u64,
    /// Seconds of probing.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Seconds a probe may take, as its request says.
    #[arg(long, default_value_t = 1)]
    timeout: i64,
    /// The command, word by word [default: true]
    #[arg(long, default_values_t = ["true".to_owned()])]
    command: Vec<String>,
    /// Pods in the host's network, without any network set-up.
    #[arg(long)]
    host_network: bool,
    /// Write every figure to this file as JSON.
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
        // The logs' directory goes also when nothing was measured.
        let _ = std::fs::remove_dir_all(shape.logs());
        report.engines.push(measured?);
    }
    println!("{}", report.table().trim_end());
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report).map_err(|e| Failure(format!("encode the report: {e}")))?;
        std::fs::write(path, text).map_err(|e| Failure(format!("write {}: {e}", path.display())))?;
    }
    Ok(())
}

async fn measure(engine: &Engine, shape: &Shape, arguments: &Arguments) -> Result<report::Row, Failure> {
    let before = crate::process::Processes::now();
    let make = |number: usize| async move { begin(engine, shape, &format!("probe-{number}")).await };
    let made: Vec<Result<Alive, Failure>> =
        stream::iter((0..arguments.containers).map(make)).buffer_unordered(IN_FLIGHT).collect().await;
    let (mut alive, mut failure) = (Vec::new(), None);
    for one in made {
        match one {
            Ok(one) => alive.push(one),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let measured = match failure {
        None => {
            let plan = load::Plan {
                containers: alive.iter().map(|alive| alive.container().to_owned()).collect(),
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
    let ends = stream::iter(alive.into_iter().map(|alive| end(engine, alive)));
    ends.buffer_unordered(IN_FLIGHT).try_collect::<()>().await?;
    measured
}
