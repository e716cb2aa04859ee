use cri_proto::pinion::PullRequest;
use serde_json::json;

use crate::{Client, Failure, output, progress};

/// Arguments of `pinion pull`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print only the id of the image
    #[arg(short, long)]
    quiet: bool,
    /// User name and password for the registry
    #[arg(long, env = "PINION_CREDENTIALS", hide_env_values = true, value_name = "USER:PASSWORD")]
    credentials: Option<String>,
    /// Image reference: `[REGISTRY/]NAME[:TAG][@DIGEST]`
    image: String,
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let (username, password) = match args.credentials.as_deref().map(|text| text.split_once(':')) {
        None => Default::default(),
        Some(Some((user, password))) => (user.to_owned(), password.to_owned()),
        Some(None) => return Err(Failure::usage("--credentials: must be USER:PASSWORD")),
    };
    let request = PullRequest { reference: args.image.clone(), username, password };
    let quiet = args.quiet || client.json;
    let id = progress::pull(&mut client, request, quiet).await?;
    match client.json {
        true => output::json(&json!({"image": args.image, "id": id}))?,
        false => output::line(&id)?,
    }
    Ok(0)
}
