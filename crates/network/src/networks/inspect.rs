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
        self.inner.named.list().iter().map(|definition| NetworkDefinition::clone(definition)).collect()
    }

    /// Returns a named network by its name, its id or the beginning of its id.
    ///
    /// # Errors
    /// [`Error::NetworkMissing`].
    pub fn network(&self, query: &str) -> Result<NetworkDefinition, Error> {
        self.inner.named.get(query).map(|definition| NetworkDefinition::clone(&definition))
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
