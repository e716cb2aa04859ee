use cri_proto::{pinion::SessionStart, v1};

use crate::{
    Client, Failure, lookup,
    session::{End, Exit, Kind, Session},
};

/// Arguments of `pinion attach`. ctrl-p ctrl-q detaches from a terminal; the container keeps running.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not send standard input
    #[arg(long)]
    no_stdin: bool,
    /// Name or id
    container: String,
}

/// Attaches to the container and returns its exit code, or 125 as Docker does.
pub(crate) async fn run(client: Client, args: Args) -> Result<u8, Failure> {
    attach(client, args).await.map_err(Failure::with_engine_code)
}

async fn attach(mut client: Client, args: Args) -> Result<u8, Failure> {
    let container = lookup::container(&mut client, &args.container).await?;
    if container.state() != v1::ContainerState::ContainerRunning {
        return Err(Failure::new(format!(
            "attach to container {:?}: it is not running; see: pinion ps -a",
            args.container
        )));
    }
    let start = start(&mut client, container.id, !args.no_stdin).await?;
    match Session::open(&mut client, Kind::Attach, start).await?.relay().await? {
        End::Exited(exit) => Ok(exited(&args.container, exit)),
        End::Detached => Ok(0),
    }
}

/// Returns the request to attach. The configuration of the container determines whether there is a terminal.
pub(super) async fn start(client: &mut Client, container: String, stdin: bool) -> Result<SessionStart, Failure> {
    let request = v1::ContainerStatusRequest { container_id: container.clone(), verbose: true };
    let info = client.runtime.container_status(request).await?.into_inner().info;
    let info: serde_json::Value = info.get("info").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let is_set = |key: &str| info["config"][key].as_bool().unwrap_or(false);
    Ok(SessionStart { container, tty: is_set("tty"), stdin: stdin && is_set("stdin"), ..Default::default() })
}

/// Reports an OOM kill, which is not visible from the exit code, and returns the exit code.
pub(super) fn exited(name: &str, exit: Exit) -> u8 {
    if exit.out_of_memory {
        eprintln!("pinion: container {name}: a process was killed: out of memory; see: pinion why {name}");
    }
    exit_code(exit.code)
}

/// Converts the exit code of a container to one that this process can exit with.
pub(super) fn exit_code(code: i32) -> u8 {
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}
