use cri_proto::pinion::ResetRequest;

use crate::{Client, Failure, output};

/// Arguments of `pinion system`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Remove every pod, container and image, the network, and all files of the daemon; the daemon ends
    Reset {
        /// Yes, all of it
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let Verb::Reset { yes } = args.verb;
    if !yes {
        return Err(Failure::usage("system reset removes every pod, container and image; if that is meant, add --yes"));
    }
    client.native.reset(ResetRequest {}).await?;
    output::line(if client.json { "{\"reset\": true}" } else { "all is removed; the daemon ends" })?;
    Ok(0)
}
