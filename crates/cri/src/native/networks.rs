//! Named networks.

use std::collections::{BTreeMap, HashMap};

use cri_proto::pinion as proto;
use pod::{NetworkChoice, NetworkDefinition, NetworkEndpoint, NetworkRequest, SubnetRequest};

use crate::{
    Failure,
    handler::{Outcome, Shared},
};

/// Creates a network.
pub(super) async fn create(
    state: Shared,
    request: proto::CreateNetworkRequest,
) -> Outcome<proto::CreateNetworkResponse> {
    let request = NetworkRequest {
        name: request.name,
        driver: request.driver,
        subnets: request.subnets.into_iter().map(requested).collect(),
        ipv6: request.ipv6,
        internal: request.internal,
        attachable: request.attachable,
        labels: sorted(request.labels),
        options: sorted(request.options),
    };
    let definition = state.engine.create_network(request).await?;
    Ok(proto::CreateNetworkResponse { network: Some(network(definition)) })
}

/// Lists the networks by name.
pub(super) async fn list(state: Shared, _request: proto::ListNetworksRequest) -> Outcome<proto::ListNetworksResponse> {
    Ok(proto::ListNetworksResponse { networks: state.engine.networks().into_iter().map(network).collect() })
}

/// Returns a network and the pods that are attached to it.
pub(super) async fn inspect(
    state: Shared,
    request: proto::InspectNetworkRequest,
) -> Outcome<proto::InspectNetworkResponse> {
    let (definition, endpoints) = state.engine.network(&request.network)?;
    Ok(proto::InspectNetworkResponse {
        network: Some(network(definition)),
        endpoints: endpoints.into_iter().map(endpoint).collect(),
    })
}

/// Removes a network.
pub(super) async fn remove(
    state: Shared,
    request: proto::RemoveNetworkRequest,
) -> Outcome<proto::RemoveNetworkResponse> {
    state.engine.remove_network(&request.network).await?;
    Ok(proto::RemoveNetworkResponse {})
}

/// Connects a running pod with a network.
pub(super) async fn connect(
    state: Shared,
    request: proto::ConnectNetworkRequest,
) -> Outcome<proto::ConnectNetworkResponse> {
    let address = |text: &String| {
        text.parse().map_err(|_| Failure::invalid("addresses", format_args!("{text:?} is not an IP address")))
    };
    let mut choice = NetworkChoice {
        network: request.network,
        ips: request.addresses.iter().map(address).collect::<Outcome<_>>()?,
        mac: Some(request.mac).filter(|mac| !mac.is_empty()),
        aliases: request.aliases,
    };
    choice.check().map_err(|reason| Failure::invalid("network", reason))?;
    state.engine.connect_network(&request.pod_sandbox_id, choice).await?;
    Ok(proto::ConnectNetworkResponse {})
}

/// Disconnects a running pod from a network.
pub(super) async fn disconnect(
    state: Shared,
    request: proto::DisconnectNetworkRequest,
) -> Outcome<proto::DisconnectNetworkResponse> {
    state.engine.disconnect_network(&request.pod_sandbox_id, request.network, request.force).await?;
    Ok(proto::DisconnectNetworkResponse {})
}

fn sorted(map: HashMap<String, String>) -> BTreeMap<String, String> {
    map.into_iter().collect()
}

fn requested(subnet: proto::NetworkSubnet) -> SubnetRequest {
    let proto::NetworkSubnet { subnet, gateway, ip_range, reserved } = subnet;
    SubnetRequest { subnet, gateway, ip_range, reserved: sorted(reserved) }
}

fn network(definition: NetworkDefinition) -> proto::Network {
    let subnet = |pool: &pod::AddressPool| proto::NetworkSubnet {
        subnet: pool.subnet.to_string(),
        gateway: pool.gateway.to_string(),
        ip_range: pool.ip_range.map(|range| range.to_string()).unwrap_or_default(),
        reserved: pool.reserved.iter().map(|(name, address)| (name.clone(), address.to_string())).collect(),
    };
    proto::Network {
        bridge: definition.bridge().unwrap_or_default(),
        subnets: definition.subnets.iter().map(subnet).collect(),
        driver: definition.driver.name().to_owned(),
        id: definition.id,
        name: definition.name,
        created_at: definition.created_at,
        internal: definition.internal,
        attachable: definition.attachable,
        labels: definition.labels.into_iter().collect(),
        options: definition.options.into_iter().collect(),
    }
}

fn endpoint(endpoint: NetworkEndpoint) -> proto::NetworkEndpoint {
    let NetworkEndpoint { sandbox, pod_name, interface, addresses, mac, aliases } = endpoint;
    proto::NetworkEndpoint {
        pod_sandbox_id: sandbox,
        pod_name,
        interface,
        addresses: addresses.iter().map(ToString::to_string).collect(),
        mac: mac.unwrap_or_default(),
        aliases,
    }
}
