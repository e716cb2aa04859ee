use cri_proto::v1;

use crate::{Client, Failure, lookup, output::Outcomes};

/// Arguments of `pinion stop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds until the container is killed
    #[arg(short, long = "time", default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(0..=86_400))]
    time: i64,
    /// Names or ids
    #[arg(required = true, value_name = "CONTAINER")]
    containers: Vec<String>,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let mut outcomes = Outcomes::new(client.json);
    for name in &args.containers {
        let outcome = stop(&mut client, name, args.time).await;
        outcomes.add(name, outcome)?;
    }
    outcomes.finish()
}

async fn stop(client: &mut Client, name: &str, timeout: i64) -> Result<(), Failure> {
    let container = lookup::container(client, name).await?;
    client.runtime.stop_container(v1::StopContainerRequest { container_id: container.id, timeout }).await?;
    Ok(())
}
