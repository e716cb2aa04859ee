//! Statistics, metrics, events and explanations.

use std::{collections::BTreeMap, sync::Arc};

use netns::PoolMetrics;
use tokio::sync::watch;

use super::Engine;
use crate::{
    ContainerId, ContainerStats, Error, EventStream, Explanation, Generation, Metrics, MonitorIdentity, MonitorMetrics,
    ObjectCounts, SandboxId, SandboxStats, Selects, StatsList, Validity, observe::why::Sources,
};

type Labels = BTreeMap<String, String>;

impl Engine {
    /// Measures one container now.
    ///
    /// # Errors
    /// `NotFound` if it is unknown or not running.
    pub async fn container_stats(
        &self,
        id: &(impl Selects<ContainerId> + ?Sized),
    ) -> Result<Arc<ContainerStats>, Error> {
        self.0.observe.stats.container_stats(id).await
    }

    /// Returns the usage of the running containers that `filter` accepts, given id, id of the pod, and labels. A
    /// container that cannot be measured is omitted.
    pub async fn list_container_stats(
        &self,
        filter: impl Fn(&ContainerId, &SandboxId, &Labels) -> bool,
    ) -> Vec<Arc<ContainerStats>> {
        self.0.observe.stats.list_container_stats(filter).await
    }

    /// Measures one pod and its running containers now.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn sandbox_stats(&self, id: &(impl Selects<SandboxId> + ?Sized)) -> Result<SandboxStats, Error> {
        self.0.observe.stats.sandbox_stats(id).await
    }

    /// Returns the usage of the ready pods that `filter` accepts, given id and labels, and of their running containers.
    pub async fn list_sandbox_stats(&self, filter: impl Fn(&SandboxId, &Labels) -> bool) -> Vec<SandboxStats> {
        self.0.observe.stats.list_sandbox_stats(filter).await
    }

    /// Returns the usage of all running containers.
    pub async fn all_container_stats(&self) -> StatsList<Arc<ContainerStats>> {
        self.0.observe.stats.all_container_stats().await
    }

    /// Returns the usage of all ready pods and their running containers.
    pub async fn all_sandbox_stats(&self) -> StatsList<SandboxStats> {
        self.0.observe.stats.all_sandbox_stats().await
    }

    /// Returns the last samples of all running containers, no matter how old. Does not count as a request.
    pub fn last_container_stats(&self) -> StatsList<Arc<ContainerStats>> {
        self.0.observe.stats.last_container_stats()
    }

    /// Returns the last samples of all ready pods, no matter how old. Does not count as a request.
    pub fn last_sandbox_stats(&self) -> StatsList<SandboxStats> {
        self.0.observe.stats.last_sandbox_stats()
    }

    /// Returns a receiver of the number of rounds in which all pods and containers were sampled in the background.
    pub fn stats_rounds(&self) -> watch::Receiver<u64> {
        self.0.observe.stats.stats_rounds()
    }

    /// Returns the current generation of the lists of pods and containers; resource usage does not affect it. A list
    /// that is made after this call, and omits objects that are being created ([`crate::ContainerSummary::settled`]),
    /// stays the same as long as the generation does.
    pub fn generation(&self) -> Generation {
        self.0.observe.stats.generation()
    }

    /// Reports whether a list of all objects would still have the same pods and containers, and its samples are not too
    /// old. Counts as a request: samples continue to be taken.
    pub fn is_valid(&self, validity: &Validity) -> bool {
        self.0.observe.stats.is_valid(validity)
    }

    /// Subscribes to events from now on. A slow listener never delays the engine.
    pub fn events(&self) -> EventStream {
        self.0.registry.subscribe()
    }

    /// Explains the pod or container with this id, prefix of an id, name, `namespace/name` or `pod/container`; a pod
    /// with its containers. An empty string stands for all objects that are being created, and all that recently could
    /// not be created or started.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn why(&self, selector: &str) -> Result<Vec<Explanation>, Error> {
        Sources { node: &self.0.node, registry: &self.0.registry, failures: &self.0.observe.failures }.why(selector)
    }

    /// Counts sandboxes and containers by state. Does not block.
    #[must_use]
    pub fn object_counts(&self) -> ObjectCounts {
        ObjectCounts::of(&self.0.registry)
    }

    /// Returns the counters of the engine.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.0.observe.metrics
    }

    /// Returns the metrics of requests to the monitor.
    #[must_use]
    pub fn monitor_metrics(&self) -> &MonitorMetrics {
        self.0.monitor.metrics()
    }

    /// Returns the identity of the monitor; `None` if none is connected.
    #[must_use]
    pub fn monitor_identity(&self) -> Option<MonitorIdentity> {
        let welcome = self.0.monitor.welcome().ok()?;
        Some(MonitorIdentity { pid: welcome.pid, version: welcome.version })
    }

    /// Returns the metrics of the pool of network namespaces.
    #[must_use]
    pub fn pool_metrics(&self) -> PoolMetrics {
        self.0.node.pool.metrics()
    }

    /// Returns the metrics of the pod network.
    #[must_use]
    pub fn network_metrics(&self) -> &network::Metrics {
        self.0.node.network.metrics()
    }
}
