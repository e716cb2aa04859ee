use cri_proto::{pinion::SessionStart, v1};

use crate::{
    Client, Failure, lookup,
    session::{End, Exit, Kind, Session},
};

/// Arguments of `pinion attach`. ctrl-p ctrl-q leaves a terminal and lets the container go on.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not send standard input
    #[arg(long)]
    no_stdin: bool,
    /// Name or id
    container: String,
}

/// Stays with the container and returns its exit code, or 125 as Docker does.
pub(crate) async fn run(client: Client, args: Args) -> Result<u8, Failure> {
    attach(client, args).await.map_err(Failure::beside_program)
}

async fn attach(mut client: Client, args: Args) -> Result<u8, Failure> {
    let container = lookup::container(&mut client, &args.container).await?;
    if container.state() != v1::ContainerState::ContainerRunning {
        return Err(Failure::new(format!("container {:?} does not run; see: pinion ps -a", args.container)));
    }
    let start = start(&mut client, container.id, !args.no_stdin).await?;
    match Session::open(&mut client, Kind::Attach, start).await?.carry().await? {
        End::Exited(exit) => Ok(exited(&args.container, exit)),
        End::Detached => Ok(0),
    }
}

/// Whether there is a terminal is the container's to say.
pub(super) async fn start(client: &mut Client, container: String, stdin: bool) -> Result<SessionStart, Failure> {
    let request = v1::ContainerStatusRequest { container_id: container.clone(), verbose: true };
    let info = client.runtime.container_status(request).await?.into_inner().info;
    let info: serde_json::Value = info.get("info").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let is = |key: &str| info["config"][key].as_bool().unwrap_or(false);
    Ok(SessionStart { container, tty: is("tty"), stdin: stdin && is("stdin"), ..Default::default() })
}

/// Reports an OOM kill, which the exit code does not show, and returns the exit code.
pub(super) fn exited(name: &str, exit: Exit) -> u8 {
    if exit.out_of_memory {
        eprintln!("pinion: container {name}: a process was killed: out of memory; see: pinion why {name}");
    }
    exit_code(exit.code)
}

/// A container's exit code as a process of this machine can have it.
pub(super) fn exit_code(code: i32) -> u8 {
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}
