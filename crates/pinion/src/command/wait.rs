use cri_proto::pinion::WaitRequest;
use serde_json::json;

use crate::{Client, Failure, lookup, output};

/// Arguments of `pinion wait`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names or ids
    #[arg(required = true, value_name = "CONTAINER")]
    containers: Vec<String>,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let mut exited = Vec::new();
    for name in &args.containers {
        let container = lookup::container(&mut client, name).await?.id;
        let response = client.native.wait(WaitRequest { container: container.clone() }).await?.into_inner();
        let code = response.known.then_some(response.exit_code);
        match client.json {
            true => exited.push(json!({"id": container, "exitCode": code})),
            false => output::line(&code.map_or_else(|| "unknown".to_owned(), |code| code.to_string()))?,
        }
    }
    if client.json {
        output::json(&exited)?;
    }
    Ok(0)
}
