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
    let mut ended = Vec::new();
    for name in &args.containers {
        let container = lookup::container(&mut client, name).await?.id;
        let answer = client.native.wait(WaitRequest { container: container.clone() }).await?.into_inner();
        let code = answer.known.then_some(answer.exit_code);
        match client.json {
            true => ended.push(json!({"id": container, "exitCode": code})),
            false => output::line(&code.map_or_else(|| "unknown".to_owned(), |code| code.to_string()))?,
        }
    }
    if client.json {
        output::json(&ended)?;
    }
    Ok(0)
}
