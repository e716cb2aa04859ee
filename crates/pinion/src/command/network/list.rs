use cri_proto::pinion::{ListNetworksRequest, Network};

use super::{PREDEFINED, filter, show};
use crate::{
    Client, Failure, human,
    output::{self},
    table::Table,
};

/// Arguments of `pinion network ls`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print ids only
    #[arg(short, long)]
    quiet: bool,
    /// Print whole ids
    #[arg(long)]
    no_trunc: bool,
    /// Only some networks: driver=DRIVER, name=PART, id=PREFIX, label=NAME[=VALUE]
    #[arg(short, long, value_name = "FILTER")]
    filter: Vec<filter::Filter>,
}

/// Returns the networks that were created.
pub(super) async fn networks(client: &mut Client) -> Result<Vec<Network>, Failure> {
    Ok(client.native.list_networks(ListNetworksRequest {}).await?.into_inner().networks)
}

pub(super) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let predefined = PREDEFINED.map(|(name, driver)| Network {
        id: name.to_owned(),
        name: name.to_owned(),
        driver: driver.to_owned(),
        ..Network::default()
    });
    let created = networks(&mut client).await?;
    let all = predefined.into_iter().chain(created).filter(|network| filter::accepts(&args.filter, network));
    let all: Vec<Network> = all.collect();
    let id = |network: &Network| if args.no_trunc { network.id.clone() } else { human::short(&network.id).to_owned() };
    if client.json {
        output::json(&all.iter().map(show::object).collect::<Vec<_>>())?;
    } else if args.quiet {
        output::lines(all.iter().map(id))?;
    } else {
        let mut table = Table::new(&["NETWORK", "NAME", "DRIVER", "SUBNETS"]);
        for network in &all {
            let subnets: Vec<&str> = network.subnets.iter().map(|subnet| subnet.subnet.as_str()).collect();
            table.row([id(network), network.name.clone(), network.driver.clone(), subnets.join(" ")]);
        }
        table.print()?;
    }
    Ok(0)
}
