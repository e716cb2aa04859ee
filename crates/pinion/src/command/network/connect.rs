//! `pinion network connect` and `disconnect`.

use std::net::IpAddr;

use cri_proto::pinion::{ConnectNetworkRequest, DisconnectNetworkRequest};

use crate::{Client, Failure, lookup};

/// Arguments of `pinion network connect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Address in the network
    #[arg(long, visible_alias = "ip6", value_name = "ADDRESS")]
    ip: Vec<IpAddr>,
    /// MAC address in the network
    #[arg(long, value_name = "MAC")]
    mac_address: Option<String>,
    /// Further name in the network
    #[arg(long, value_name = "NAME")]
    alias: Vec<String>,
    /// Name or id of the network
    network: String,
    /// Name or id of the pod, or of a container
    pod: String,
}

pub(super) async fn run(mut client: Client, args: Args) -> Result<u8, Failure> {
    let request = ConnectNetworkRequest {
        pod_sandbox_id: pod(&mut client, &args.pod).await?,
        network: args.network,
        addresses: args.ip.iter().map(ToString::to_string).collect(),
        mac: args.mac_address.unwrap_or_default(),
        aliases: args.alias,
    };
    client.native.connect_network(request).await?;
    Ok(0)
}

pub(super) async fn disconnect(mut client: Client, network: String, name: &str, force: bool) -> Result<u8, Failure> {
    let pod_sandbox_id = match pod(&mut client, name).await {
        // Its record was removed with its attachments.
        Err(_) if force => return Ok(0),
        other => other?,
    };
    client.native.disconnect_network(DisconnectNetworkRequest { pod_sandbox_id, network, force }).await?;
    Ok(0)
}

/// Returns the id of a pod, given its name or id, or that of one of its containers.
async fn pod(client: &mut Client, name: &str) -> Result<String, Failure> {
    if let Some(pod) = lookup::find_pod(client, name).await? {
        return Ok(pod.id);
    }
    match lookup::find_container(client, name).await? {
        Some(container) => Ok(container.pod_sandbox_id),
        None => Err(Failure::new(format!("no pod or container {name:?}; see: pinion ps"))),
    }
}
