//! `pinion network`: networks that containers join by name.

mod connect;
mod create;
mod filter;
mod list;
mod show;
mod trace;
mod trace_text;

use cri_proto::pinion::RemoveNetworkRequest;

use crate::{Client, Failure, output::Outcomes};

/// Networks that exist without a definition: name and driver.
const PREDEFINED: [(&str, &str); 3] = [("default", "bridge"), ("host", "host"), ("none", "none")];

/// Arguments of `pinion network`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Create a network; it survives a reboot
    Create(Box<create::Args>),
    /// List networks
    #[command(visible_alias = "list")]
    Ls(list::Args),
    /// Show networks and the pods that are attached to them as JSON
    Inspect {
        /// Names or ids
        #[arg(required = true, value_name = "NETWORK")]
        networks: Vec<String>,
    },
    /// Remove networks that are not in use
    #[command(visible_alias = "remove")]
    Rm {
        /// Succeed if a network does not exist
        #[arg(short, long)]
        force: bool,
        /// Names or ids
        #[arg(required = true, value_name = "NETWORK")]
        networks: Vec<String>,
    },
    /// Connect a running pod with a network
    Connect(connect::Args),
    /// Disconnect a running pod from a network
    Disconnect {
        /// Succeed if the pod is not connected
        #[arg(short, long)]
        force: bool,
        /// Name or id of the network
        network: String,
        /// Name or id of the pod, or of a container
        pod: String,
    },
    /// Send a packet from a pod, and show its way: routes, links, and the rules that it passes
    Trace(trace::Args),
    /// Remove all networks that are not in use
    Prune {
        /// Only networks with a label: label=NAME[=VALUE], label!=NAME[=VALUE]
        #[arg(long, value_name = "FILTER")]
        filter: Vec<filter::Filter>,
        /// Accepted for Docker's users; has no effect
        #[arg(short, long, hide = true)]
        force: bool,
    },
}

pub(crate) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    match args.verb {
        Verb::Create(args) => create::run(client, *args).await,
        Verb::Ls(args) => list::run(client, args).await,
        Verb::Inspect { networks } => show::run(client, &networks).await,
        Verb::Rm { force, networks } => {
            let mut outcomes = Outcomes::new(client.json);
            for name in &networks {
                let outcome = match remove(&mut client, name).await {
                    Err(status) if force && status.code() == tonic::Code::NotFound => Ok(()),
                    other => other.map_err(Failure::from),
                };
                outcomes.add(name, outcome)?;
            }
            outcomes.finish()
        }
        Verb::Connect(args) => connect::run(client, args).await,
        Verb::Disconnect { force, network, pod } => connect::disconnect(client, network, &pod, force).await,
        Verb::Trace(args) => trace::run(client, args).await,
        Verb::Prune { filter, force: _ } => prune(client, &filter).await,
    }
}

async fn remove(client: &mut Client, network: &str) -> Result<(), tonic::Status> {
    client.native.remove_network(RemoveNetworkRequest { network: network.to_owned() }).await.map(drop)
}

/// Removes what is not in use; the daemon decides which that is.
async fn prune(mut client: Client, filters: &[filter::Filter]) -> Result<u8, Failure> {
    let mut outcomes = Outcomes::new(client.json);
    for network in list::networks(&mut client).await?.into_iter().filter(|network| filter::accepts(filters, network)) {
        match remove(&mut client, &network.id).await {
            Err(status) if matches!(status.code(), tonic::Code::FailedPrecondition | tonic::Code::NotFound) => {}
            other => outcomes.add(&network.name, other.map_err(Failure::from))?,
        }
    }
    outcomes.finish()
}
