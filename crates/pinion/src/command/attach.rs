use cri_proto::{pinion::SessionStart, v1};

use crate::{
    Client, Failure, lookup,
    session::{End, Kind, Session},
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

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let container = lookup::container(&mut client, &args.container).await?;
    if container.state() != v1::ContainerState::ContainerRunning {
        return Err(Failure::new(format!("container {:?} does not run; see: pinion ps -a", args.container)));
    }
    let start = start(&mut client, container.id, !args.no_stdin).await?;
    match Session::open(&mut client, Kind::Attach, start).await?.carry().await? {
        End::Exited(code) => Ok(exit_code(code)),
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

/// A container's exit code as a process of this machine can have it.
pub(super) fn exit_code(code: i32) -> u8 {
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}
