use std::path::PathBuf;

use cri_proto::pinion::SessionStart;

use super::attach::exit_code;
use crate::{
    Client, Failure, environment, lookup,
    session::{End, Kind, Session},
    terminal,
};

/// Arguments of `pinion exec`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "pinion exec [OPTIONS] <CONTAINER> <COMMAND>...")]
pub(crate) struct Args {
    /// Send standard input
    #[arg(short, long)]
    interactive: bool,
    /// Give the command a terminal
    #[arg(short, long)]
    tty: bool,
    /// Set an environment variable; NAME without a value takes it from the local environment
    #[arg(short, long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Read environment variables from a file
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
    /// Working directory in the container
    #[arg(short, long, value_name = "DIRECTORY")]
    workdir: Option<String>,
    /// User, optionally with :GROUP
    #[arg(short, long)]
    user: Option<String>,
    /// Name or id of the container, and the command with its arguments; options after the container belong to the
    /// command
    // A single argument, because clap stops parsing options only at the last positional argument.
    #[arg(required = true, num_args = 2.., trailing_var_arg = true, value_names = ["CONTAINER", "COMMAND"])]
    program: Vec<String>,
}

/// Runs the command in the container and returns its exit code, or 125 to 127 as Docker does.
pub(crate) async fn run(client: Client, args: Args) -> Result<u8, Failure> {
    execute(client, args).await.map_err(Failure::with_engine_code)
}

async fn execute(mut client: Client, args: Args) -> Result<u8, Failure> {
    if args.tty && args.interactive && !terminal::is_input() {
        return Err(Failure::usage("exec -t: standard input is not a terminal"));
    }
    let env = environment::all(&args.env_file, &args.env).map_err(Failure::usage)?;
    let (name, command) = args.program.split_first().ok_or_else(|| Failure::usage("exec: no container given"))?;
    let container = lookup::container(&mut client, name).await?;
    let start = SessionStart {
        container: container.id,
        command: command.to_vec(),
        tty: args.tty,
        stdin: args.interactive,
        size: None,
        env: env.into_iter().map(|(name, value)| format!("{name}={value}")).collect(),
        working_dir: args.workdir.unwrap_or_default(),
        user: args.user.unwrap_or_default(),
    };
    let session = Session::open(&mut client, Kind::Exec, start).await.map_err(Failure::with_exec_code)?;
    match session.relay().await? {
        End::Exited(exit) => {
            if exit.out_of_memory {
                eprintln!("pinion: exec in container {name}: a process was killed: the container was out of memory");
            }
            Ok(exit_code(exit.code))
        }
        End::Detached => Ok(0),
    }
}
