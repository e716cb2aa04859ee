//! `pinion network inspect`.

use cri_proto::pinion::{InspectNetworkRequest, Network, NetworkEndpoint, NetworkSubnet};
use serde_json::{Value, json};

use super::PREDEFINED;
use crate::{Client, Failure, output};

/// Prints a JSON array, whether or not `--json` is given.
pub(super) async fn run(mut client: Client, names: &[String]) -> Result<u8, Failure> {
    let mut objects = Vec::new();
    for name in names {
        if let Some((name, driver)) = PREDEFINED.into_iter().find(|(predefined, _)| predefined == name) {
            objects.push(object(&Network {
                id: name.into(),
                name: name.into(),
                driver: driver.into(),
                ..Network::default()
            }));
            continue;
        }
        let request = InspectNetworkRequest { network: name.clone() };
        let response = client.native.inspect_network(request).await?.into_inner();
        let mut object = object(&response.network.unwrap_or_default());
        object["pods"] = response.endpoints.iter().map(endpoint).collect();
        objects.push(object);
    }
    output::json(&objects)?;
    Ok(0)
}

pub(super) fn object(network: &Network) -> Value {
    let bridge = Some(&network.bridge).filter(|bridge| !bridge.is_empty());
    json!({
        "id": network.id, "name": network.name, "driver": network.driver, "createdAt": network.created_at,
        "internal": network.internal, "attachable": network.attachable, "labels": network.labels,
        "options": network.options, "bridge": bridge,
        "subnets": network.subnets.iter().map(subnet).collect::<Vec<_>>(),
    })
}

fn subnet(subnet: &NetworkSubnet) -> Value {
    let mut object = json!({"subnet": subnet.subnet, "gateway": subnet.gateway});
    if !subnet.ip_range.is_empty() {
        object["ipRange"] = json!(subnet.ip_range);
    }
    if !subnet.reserved.is_empty() {
        object["auxAddresses"] = json!(subnet.reserved);
    }
    object
}

fn endpoint(endpoint: &NetworkEndpoint) -> Value {
    json!({
        "id": endpoint.pod_sandbox_id, "name": endpoint.pod_name, "interface": endpoint.interface,
        "ips": endpoint.addresses, "mac": Some(&endpoint.mac).filter(|mac| !mac.is_empty()), "aliases": endpoint.aliases,
    })
}
