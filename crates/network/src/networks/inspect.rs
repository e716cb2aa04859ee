//! Lists networks and the pods that are attached to them.

use std::net::IpAddr;

use crate::{Driver, Error, Network, NetworkDefinition, bridge::default_mac, ledger::Record, network::Inner};

/// An attachment of a pod to a named network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkEndpoint {
    /// Sandbox id of the pod.
    pub sandbox: String,
    /// Name of the pod.
    pub pod_name: String,
    /// Interface in the pod.
    pub interface: String,
    /// Addresses of the pod in the network; empty while it is being attached.
    pub addresses: Vec<IpAddr>,
    /// MAC address, if it is known.
    pub mac: Option<String>,
    /// Further names of the pod in the network.
    pub aliases: Vec<String>,
}

impl Network {
    /// Returns the named networks by name.
    #[must_use]
    pub fn networks(&self) -> Vec<NetworkDefinition> {
        self.inner.named.list().iter().map(|definition| self.inner.on_this_node(definition)).collect()
    }

    /// Returns a named network by its name, its id or the beginning of its id.
    ///
    /// # Errors
    /// [`Error::NetworkMissing`].
    pub fn network(&self, query: &str) -> Result<NetworkDefinition, Error> {
        self.inner.named.get(query).map(|definition| self.inner.on_this_node(&definition))
    }

    /// Returns the pods that are attached to a network. Reads the records, so it may block.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub fn endpoints(&self, definition: &NetworkDefinition) -> Result<Vec<NetworkEndpoint>, Error> {
        offload::hand_over(|| self.inner.endpoints_of(definition))
    }
}

/// Returns the requested address, or the one that a bridge derives from the pod's first IP address.
fn mac(definition: &NetworkDefinition, record: &Record) -> Option<String> {
    let requested = record.selection.as_ref().and_then(|selection| selection.mac.clone());
    let derived = || record.addresses.first().filter(|_| definition.driver == Driver::Bridge).copied().map(default_mac);
    requested.or_else(derived)
}

impl Inner {
    /// Returns the gateways of pods of this node. An overlay does not have any until the node has a subnet.
    pub(crate) fn gateways(&self, definition: &NetworkDefinition) -> Result<Vec<IpAddr>, Error> {
        let store = match (definition.driver, &self.overlay_store) {
            (Driver::Overlay, Some(store)) => store,
            _ => return Ok(definition.subnets.iter().map(|pool| pool.gateway).collect()),
        };
        let record = overlay::Record::read(&store.state_directory, &definition.list_name());
        let record =
            record.map_err(|error| Error::config(format!("network {}", definition.name), error.to_string()))?;
        let subnets = record.map(|record| record.definition.subnets).unwrap_or_default();
        Ok(subnets.into_iter().map(rtnl::subnet::Subnet::first_usable).collect())
    }

    /// Returns a definition with the gateways of this node.
    fn on_this_node(&self, definition: &NetworkDefinition) -> NetworkDefinition {
        let mut definition = definition.clone();
        if definition.driver == Driver::Overlay {
            for gateway in offload::in_place(|| self.gateways(&definition)).unwrap_or_default() {
                if let Some(pool) = definition.subnets.iter_mut().find(|pool| pool.subnet.contains(gateway)) {
                    pool.gateway = gateway;
                }
            }
        }
        definition
    }

    pub(crate) fn endpoints_of(&self, definition: &NetworkDefinition) -> Result<Vec<NetworkEndpoint>, Error> {
        let name = definition.list_name();
        let records = self.ledger.all()?.into_iter().filter_map(|entry| entry.record);
        let mut endpoints: Vec<NetworkEndpoint> = records
            .filter(|record| record.network() == Some(name.as_str()))
            .map(|record| NetworkEndpoint {
                sandbox: record.pod.sandbox.clone(),
                pod_name: record.pod.name.clone(),
                interface: record.interface.clone(),
                mac: mac(definition, &record),
                aliases: record.selection.map(|selection| selection.aliases).unwrap_or_default(),
                addresses: record.addresses,
            })
            .collect();
        endpoints.sort_by(|a, b| (&a.pod_name, &a.sandbox).cmp(&(&b.pod_name, &b.sandbox)));
        Ok(endpoints)
    }
}
