//! `pinion-bench runtimes`: containers of `true`, run by each runtime through engines and at the command line, in turn.

mod contestant;
mod engine_run;
mod memory;
mod turns;

use self::{contestant::Contestants, turns::Runtimes};
use crate::{
    engine::{Endpoint, Engine, Failure},
    oci::{ClientArgument, RuntimeArgument},
    pods::{self, Shape},
    run,
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
    /// Client of an engine with the commands `run` and `rm` of Docker, NAME=COMMAND, such as `docker=docker` or `podman=podman --runtime crun`; may be repeated.
    #[arg(long = "client")]
    clients: Vec<ClientArgument>,
    /// Image with `true` and `sleep` for engines and clients; pulled if it is missing.
    #[arg(long)]
    image: String,
    /// Number of rounds. Engines and runtimes take turns in each, and none is always the first.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Number of containers of a turn.
    #[arg(long, short = 'n', default_value_t = 10)]
    runs: usize,
    /// Number of running pods for the measurement of processes and memory; 0 disables it.
    #[arg(long, default_value_t = 10)]
    density: usize,
    /// Skip the search for the lowest memory limit.
    #[arg(long)]
    no_memory: bool,
    #[command(flatten)]
    options: run::Options,
}

/// Measures everything and prints the tables.
pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.engines.is_empty() && arguments.runtimes.is_empty() && arguments.clients.is_empty() {
        return Err(Failure(
            "name at least one engine (--engine), runtime (--runtime) or client (--client)".to_owned(),
        ));
    }
    if arguments.runs == 0 || arguments.rounds == 0 {
        return Err(Failure("--rounds and --runs must be at least 1".to_owned()));
    }
    let shape = Shape::new(&arguments.image, false);
    let engines = Engine::connect_all(&arguments.engines, &arguments.image).await?;
    let contestants = Contestants::prepare(&engines, &shape, (&arguments.runtimes, &arguments.clients))?;
    let mut runtimes = Runtimes {
        contestants,
        engines,
        shape: shape.clone(),
        rounds: arguments.rounds,
        runs: arguments.runs,
        density: arguments.density,
        searches_memory: !arguments.no_memory,
    };
    pods::drive(&mut runtimes, &shape, &arguments.options).await
}
