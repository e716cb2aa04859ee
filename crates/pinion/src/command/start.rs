use cri_proto::v1;

use crate::{Client, Failure, lookup, output::Outcomes};

/// Arguments of `pinion start`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names or ids
    #[arg(required = true, value_name = "CONTAINER")]
    containers: Vec<String>,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let mut outcomes = Outcomes::new(client.json);
    for name in &args.containers {
        let outcome = start(&mut client, name).await;
        outcomes.add(name, outcome)?;
    }
    outcomes.finish()
}

async fn start(client: &mut Client, name: &str) -> Result<(), Failure> {
    let container = lookup::container(client, name).await?;
    client.runtime.start_container(v1::StartContainerRequest { container_id: container.id }).await?;
    Ok(())
}
