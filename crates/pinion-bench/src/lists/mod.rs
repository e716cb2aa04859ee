//! `pinion-bench lists`: what it costs to look at a full node through the CRI.
//!
//! Pods of one container are made, as a kubelet names them, and then every list is asked for again and again: by
//! itself, and once more with one frozen and one dead container among them. An answer is read to its last byte and not
//! decoded: the time is the engine's and the socket's.

mod call;
mod crowd;
mod disturb;
mod report;
mod rounds;

use std::path::PathBuf;

use crate::{
    engine::{Endpoint, Engine, Failure},
    machine::Machine,
    pods::Shape,
};

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// An engine: NAME=SOCKET; several are measured one after the other.
    #[arg(long = "engine", required = true)]
    engines: Vec<Endpoint>,
    /// Image with `sleep`; pulled where it is missing.
    #[arg(long)]
    image: String,
    /// Pods of one container each.
    #[arg(long, short = 'n', default_value_t = 1000)]
    pods: usize,
    /// Requests for each list.
    #[arg(long, default_value_t = 200)]
    requests: usize,
    /// As many clients ask at once, each over a connection of its own.
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Milliseconds between two requests.
    #[arg(long, default_value_t = 20)]
    pause: u64,
    /// How many pods are made and removed at a time.
    #[arg(long, default_value_t = 8)]
    in_flight: usize,
    /// Pods in the host's network, without any network set-up.
    #[arg(long)]
    host_network: bool,
    /// Write every figure to this file as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Measures every engine and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.pods < 2 || arguments.requests == 0 || arguments.clients == 0 || arguments.in_flight == 0 {
        return Err(Failure("--pods must be at least 2, --requests, --clients and --in-flight at least 1".to_owned()));
    }
    let shape = Shape::new(&arguments.image, arguments.host_network).named_as_by_a_kubelet();
    let mut engines = Vec::new();
    for endpoint in &arguments.engines {
        let mut engine = Engine::connect(endpoint).await?;
        engine.ensure_image(&arguments.image).await?;
        engines.push(engine);
    }
    let mut report = report::Report::new(Machine::here(), &engines, arguments.pods);
    for engine in &engines {
        let measured = measure(engine, &shape, &arguments).await;
        // The logs' directory goes also when nothing was measured.
        let _ = std::fs::remove_dir_all(shape.logs());
        report.engines.push(measured?);
    }
    println!("{}", report.tables().trim_end());
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report).map_err(|e| Failure(format!("encode the report: {e}")))?;
        std::fs::write(path, text).map_err(|e| Failure(format!("write {}: {e}", path.display())))?;
    }
    Ok(())
}

async fn measure(engine: &Engine, shape: &Shape, arguments: &Arguments) -> Result<report::Row, Failure> {
    let crowd = crowd::Crowd::raise(engine, shape, arguments.pods, arguments.in_flight).await?;
    let pause = std::time::Duration::from_millis(arguments.pause);
    let load = rounds::Load { requests: arguments.requests, clients: arguments.clients, pause };
    let measured = async {
        let calm = rounds::run(engine, &load).await?;
        let disturbed = {
            let _frozen = disturb::freeze(&crowd.frozen)?;
            disturb::kill(&crowd.dead)?;
            rounds::run(engine, &load).await?
        };
        Ok(report::Row { engine: engine.name.clone(), version: engine.version.clone(), calm, disturbed })
    };
    let measured = measured.await;
    crowd.lower(engine, arguments.in_flight).await?;
    measured
}
