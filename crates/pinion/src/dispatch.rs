//! Runs the command that the arguments select.

use clap::CommandFactory;

use crate::{
    Failure,
    arguments::{Arguments, Command},
    client::Client,
    command::{
        attach, completions, config, doctor, exec, handlers, images, info, inspect, kill, load, logs, man, migrate,
        netns, network, pods, ps, pull, reset, rm, rmi, run, save, serve, start, stats, stop, upgrade, version, vm,
        wait, why,
    },
};

/// Runs the command and returns the exit code.
pub(crate) fn run(arguments: Arguments) -> Result<u8, Failure> {
    let Arguments { socket, json, command } = arguments;
    match command {
        Command::Serve(args) => serve::run(args, socket),
        Command::Reset(args) => reset::run(args, socket),
        Command::Config(args) => match config::run(args, json)? {
            None => Ok(0),
            Some(request) => {
                on_runtime(async { config::send(Client::connect(socket, json).await, request, json).await })
            }
        },
        Command::Completions(args) => completions::run(&args, Arguments::command()),
        Command::Netns(args) => netns::run(args, json),
        Command::Doctor(args) => {
            let examination = doctor::start(&args, socket).map_err(Failure::with_engine_code)?;
            on_runtime(doctor::run(examination, args, json)).map_err(Failure::with_engine_code)
        }
        Command::Migrate(args) => {
            let examination = doctor::Examination::without_probes(None, None, socket)?;
            on_runtime(migrate::run(examination, args, json))
        }
        Command::Man(args) => man::run(&args, Arguments::command()),
        Command::Vm(args) => vm::run(args, json),
        command => on_runtime(client_command(command, socket, json)),
    }
}

fn on_runtime(task: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("start the async runtime: {error}")))?;
    let outcome = runtime.block_on(task);
    runtime.shutdown_background();
    outcome
}

async fn client_command(command: Command, socket: Option<std::path::PathBuf>, json: bool) -> Result<u8, Failure> {
    if let Command::Version(_) = command {
        return version::run(socket, json).await;
    }
    let client = Client::connect(socket, json).await?;
    match command {
        Command::Run(args) => run::run(client, *args).await,
        Command::Ps(args) => ps::run(client, args).await,
        Command::Pods(args) => pods::run(client, args).await,
        Command::Logs(args) => logs::run(client, args).await,
        Command::Exec(args) => exec::run(client, args).await,
        Command::Attach(args) => attach::run(client, args).await,
        Command::Start(args) => start::run(client, args).await,
        Command::Stop(args) => stop::run(client, args).await,
        Command::Kill(args) => kill::run(client, args).await,
        Command::Wait(args) => wait::run(client, args).await,
        Command::Rm(args) => rm::run(client, args).await,
        Command::Stats(args) => stats::run(client, args).await,
        Command::Network(args) => network::run(client, args).await,
        Command::Inspect(args) => inspect::run(client, args).await,
        Command::Images(args) => images::run(client, args).await,
        Command::Pull(args) => pull::run(client, args).await,
        Command::Rmi(args) => rmi::run(client, args).await,
        Command::Load(args) => load::run(client, args).await,
        Command::Save(args) => save::run(client, args).await,
        Command::Why(args) => why::run(client, args).await,
        Command::Info(_) => info::run(client).await,
        Command::Handlers(args) => handlers::run(client, args).await,
        Command::Upgrade(args) => upgrade::run(client, args).await,
        Command::Serve(_)
        | Command::Reset(_)
        | Command::Config(_)
        | Command::Doctor(_)
        | Command::Migrate(_)
        | Command::Netns(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Vm(_)
        | Command::Version(_) => Ok(0),
    }
}
