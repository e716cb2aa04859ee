//! Names of pods and containers in named networks.

use std::net::IpAddr;

use super::Parts;
use crate::{
    Error,
    error::failed,
    store::{Container, Sandbox},
};

/// Number of characters of an id that people use as a name.
const SHORT: usize = 12;

impl Parts {
    /// Starts the resolver of a pod. Names that its networks do not have are forwarded to the servers of its DNS
    /// configuration, if it has some.
    pub(crate) fn serve_names(&self, sandbox: &Sandbox, namespace: &netns::Namespace) -> Result<(), Error> {
        let servers = sandbox.config().dns.as_ref().map(|dns| dns.servers.as_slice()).unwrap_or_default();
        let servers: Vec<IpAddr> = servers.iter().filter_map(|server| server.parse().ok()).collect();
        let started = self.node.network.serve_names(sandbox.id().as_str(), namespace, &servers);
        started.map_err(failed("start the resolver of the pod"))
    }

    /// Starts the resolver of a pod again after a restart of the daemon, and adds the names of its containers.
    pub(crate) fn restore_names(&self, sandbox: &Sandbox) {
        let namespace = offload::in_place(|| self.node.pins.get(sandbox.id().as_str()));
        let namespace = namespace.map_err(failed("open its network namespace"));
        if let Err(error) = namespace.and_then(|namespace| self.serve_names(sandbox, &namespace)) {
            tracing::warn!("pod {}: {error}; names of its networks are not resolved", sandbox.id());
        }
        for container in self.registry.containers_of(sandbox.id()) {
            self.add_container_name(sandbox, &container);
        }
    }

    /// Makes the name of a container and its short id names of its pod.
    pub(crate) fn add_container_name(&self, sandbox: &Sandbox, container: &Container) {
        if sandbox.has_resolver() {
            let id = container.id().as_str();
            let names = [container.metadata.config.name.as_str(), id.get(..SHORT).unwrap_or(id)].map(str::to_owned);
            self.node.network.names().set_container(sandbox.id().as_str(), id, names.into());
        }
    }
}
