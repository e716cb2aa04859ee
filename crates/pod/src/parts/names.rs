//! Names of pods and containers in named networks.

use std::{net::IpAddr, sync::Arc};

use super::Parts;
use crate::{
    Error,
    error::failed,
    store::{Container, Sandbox, SandboxPhase},
};

/// Number of characters of an id that people use as a name.
const SHORT: usize = 12;

/// Reports whether an address reaches services of the node or of its link only: queries are forwarded from the node, and a
/// pod must not reach by them what it could not reach itself.
fn is_of_node(address: &IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_unspecified() || v4.is_link_local() || v4.is_multicast(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified() || v6.is_unicast_link_local() || v6.is_multicast(),
    }
}

impl Parts {
    /// Starts the resolver of a pod. Names that its networks do not have are forwarded to the servers of its DNS
    /// configuration, if it has some.
    pub(crate) fn serve_names(&self, sandbox: &Sandbox, namespace: &netns::Namespace) -> Result<(), Error> {
        let servers = sandbox.config().dns.as_ref().map(|dns| dns.servers.as_slice()).unwrap_or_default();
        let servers: Vec<IpAddr> =
            servers.iter().filter_map(|server| server.parse().ok()).filter(|server| !is_of_node(server)).collect();
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

    /// Starts resolvers of ready pods that are not running: a program of the pod had the port when it was started.
    pub(crate) fn retry_names(&self) {
        let is_missing = |sandbox: &&Arc<Sandbox>| {
            let is_ready = sandbox.record().phase == SandboxPhase::Ready;
            is_ready && sandbox.has_resolver() && !self.node.network.is_serving_names(sandbox.id().as_str())
        };
        self.registry.sandboxes().iter().filter(is_missing).for_each(|sandbox| self.restore_names(sandbox));
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
