//! The engine, as NRI plugins use it.

use std::sync::{Arc, Weak, atomic::Ordering};

use futures_util::future::BoxFuture;
use nri::{
    Host, Known, PendingEviction,
    messages::{Container, ContainerUpdate, Pod},
};

use crate::{
    Error, container::plugin_changes, operation::blocking, parts::Parts, plugins::describe_container,
    plugins::describe_pod, store::ContainerPhase,
};

/// Lets plugins see the parts of the engine for as long as they exist.
struct PluginHost(Weak<Parts>);

/// Starts the interface. Pods and containers that were restored are part of the synchronization of each plugin.
pub(super) async fn start(parts: &Arc<Parts>) -> Result<(), Error> {
    let Some(plugins) = &parts.plugins else { return Ok(()) };
    for sandbox in parts.registry.sandboxes().iter().filter(|sandbox| !sandbox.is_creating()) {
        sandbox.known_to_plugins.store(true, Ordering::SeqCst);
    }
    for container in parts.registry.listed_containers().iter().filter(|container| !container.is_creating()) {
        container.known_to_plugins.store(true, Ordering::SeqCst);
    }
    let host: Arc<dyn Host> = Arc::new(PluginHost(Arc::downgrade(parts)));
    plugins.start(host).await.map_err(|error| Error::internal(format!("start the interface of NRI plugins: {error}")))
}

impl Host for PluginHost {
    fn known(&self) -> Known {
        let Some(parts) = self.0.upgrade() else { return Known::default() };
        let sandboxes = parts.registry.sandboxes().into_iter();
        let containers = parts.registry.containers().into_iter();
        Known {
            pods: sandboxes
                .filter(|sandbox| sandbox.known_to_plugins.load(Ordering::SeqCst))
                .map(|sandbox| sandbox.id().to_string())
                .collect(),
            containers: containers
                .filter(|container| container.known_to_plugins.load(Ordering::SeqCst))
                .map(|container| container.id().to_string())
                .collect(),
        }
    }

    fn describe(&self, known: Known) -> BoxFuture<'static, (Vec<Pod>, Vec<Container>)> {
        let parts = self.0.clone();
        Box::pin(async move {
            let Some(parts) = parts.upgrade() else { return Default::default() };
            let described = blocking(move || {
                let pods = known.pods.iter().filter_map(|id| parts.registry.sandbox(id.as_str()).ok());
                let pods = pods.map(|sandbox| describe_pod(&parts, &sandbox)).collect();
                let containers = known.containers.iter().filter_map(|id| parts.registry.container(id.as_str()).ok());
                // As in containerd, which leaves out containers that exited and those whose state is not known.
                let containers = containers.filter(|container| {
                    let record = container.record();
                    record.phase != ContainerPhase::Exited && record.broken.is_none()
                });
                let describe = |container: Arc<crate::store::Container>| {
                    describe_container(&container, container.spec(&parts.registry.records).ok().as_ref())
                };
                Ok((pods, containers.map(describe).collect()))
            });
            described.await.unwrap_or_default()
        })
    }

    fn update(&self, updates: Vec<ContainerUpdate>) -> BoxFuture<'static, Vec<ContainerUpdate>> {
        let parts = self.0.clone();
        Box::pin(async move {
            match parts.upgrade() {
                Some(parts) => plugin_changes::update_all(&parts, updates).await,
                None => updates,
            }
        })
    }

    fn evict(&self, evictions: Vec<PendingEviction>) {
        if let Some(parts) = self.0.upgrade() {
            plugin_changes::evict(&parts, evictions);
        }
    }
}
