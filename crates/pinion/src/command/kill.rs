use cri_proto::pinion::KillRequest;

use crate::{Client, Failure, lookup, output::Outcomes, signal_name};

/// Arguments of `pinion kill`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Signal number or name
    #[arg(short, long, default_value = "KILL", value_parser = signal_name::parse)]
    signal: i32,
    /// Signal every process of the container, not only the first
    #[arg(long)]
    all: bool,
    /// Names or ids
    #[arg(required = true, value_name = "CONTAINER")]
    containers: Vec<String>,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let mut outcomes = Outcomes::new(client.json);
    for name in &args.containers {
        let outcome = kill(&mut client, name, args.signal, args.all).await;
        outcomes.add(name, outcome)?;
    }
    outcomes.finish()
}

async fn kill(client: &mut Client, name: &str, signal: i32, all: bool) -> Result<(), Failure> {
    let container = lookup::container(client, name).await?.id;
    client.native.kill(KillRequest { container, signal, all }).await?;
    Ok(())
}
