use std::path::PathBuf;

use cri_proto::pinion::SessionStart;

use super::attach::exit_code;
use crate::{
    Client, Failure, environment,
    failure::CANNOT,
    lookup,
    session::{End, Kind, Session},
    terminal,
};

/// Arguments of `pinion exec`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Send standard input
    #[arg(short, long)]
    interactive: bool,
    /// Give the command a terminal
    #[arg(short, long)]
    tty: bool,
    /// Set a variable; NAME alone takes the value from here
    #[arg(short, long = "env", value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Read variables from a file
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
    /// Working directory in the container
    #[arg(short, long, value_name = "FOLDER")]
    workdir: Option<String>,
    /// User, with :GROUP or not
    #[arg(short, long)]
    user: Option<String>,
    /// Name or id
    container: String,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let cannot = |failure: Failure| failure.with_code(CANNOT);
    if args.tty && args.interactive && !terminal::is_input() {
        return Err(Failure::usage("exec -t: standard input is not a terminal"));
    }
    let env = environment::all(&args.env_file, &args.env).map_err(Failure::usage)?;
    let container = lookup::container(&mut client, &args.container).await.map_err(cannot)?;
    let start = SessionStart {
        container: container.id,
        command: args.command,
        tty: args.tty,
        stdin: args.interactive,
        size: None,
        env: env.into_iter().map(|(name, value)| format!("{name}={value}")).collect(),
        working_dir: args.workdir.unwrap_or_default(),
        user: args.user.unwrap_or_default(),
    };
    let session = Session::open(&mut client, Kind::Exec, start).await.map_err(Failure::of_command)?;
    match session.carry().await.map_err(cannot)? {
        End::Exited(code) => Ok(exit_code(code)),
        End::Detached => Ok(0),
    }
}
