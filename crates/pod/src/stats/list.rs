//! Requests for statistics.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use tokio::sync::watch;

use super::{
    ContainerStats, SandboxStats, StatsList, Validity,
    sampler::{DueSamples, Targets},
};
use crate::{
    Engine, Error, clock,
    engine::{Inner, blocking},
    sandbox::Sandbox,
};

type Labels = BTreeMap<String, String>;

impl Engine {
    /// Measures one container now.
    ///
    /// # Errors
    /// `NotFound` if it is unknown or not running.
    pub async fn container_stats(&self, id: &str) -> Result<Arc<ContainerStats>, Error> {
        let container = self.0.container(id)?;
        let missing = || Error::not_found("running container", container.id());
        if !container.is_running() {
            return Err(missing());
        }
        let targets = Targets { containers: vec![Arc::clone(&container)], sandboxes: Vec::new() };
        self.measure_and_read(targets, |_, _| self.0.stats.container(container.id())).await.ok_or_else(missing)
    }

    /// Returns the usage of the running containers that `filter` accepts, given id, id of the pod, and labels. A
    /// container that cannot be measured is omitted.
    pub async fn list_container_stats(&self, filter: impl Fn(&str, &str, &Labels) -> bool) -> Vec<Arc<ContainerStats>> {
        let mut containers = self.0.containers();
        containers.retain(|container| {
            let metadata = &container.metadata;
            container.is_running() && filter(&metadata.id, &metadata.sandbox, &metadata.config.labels)
        });
        let targets = Targets { containers, sandboxes: Vec::new() };
        self.measure_and_read(targets, |targets, _| self.0.stats.containers(&targets.containers)).await
    }

    /// Measures one pod and its running containers now.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn sandbox_stats(&self, id: &str) -> Result<SandboxStats, Error> {
        let sandbox = self.0.sandbox(id)?;
        let stats = self.pod_stats(vec![Arc::clone(&sandbox)]).await;
        stats.into_iter().next().ok_or_else(|| Error::not_found("pod", sandbox.id()))
    }

    /// Returns the usage of the ready pods that `filter` accepts, given id and labels, and of their running containers.
    pub async fn list_sandbox_stats(&self, filter: impl Fn(&str, &Labels) -> bool) -> Vec<SandboxStats> {
        let mut sandboxes = self.0.sandboxes();
        sandboxes.retain(|sandbox| sandbox.is_ready() && filter(sandbox.id(), &sandbox.config().labels));
        self.pod_stats(sandboxes).await
    }

    /// Returns the usage of all running containers.
    pub async fn all_container_stats(&self) -> StatsList<Arc<ContainerStats>> {
        let changes = self.changes();
        let targets = self.all_targets(false);
        self.measure_and_read(targets, |targets, sampled| self.container_list(targets, changes, sampled)).await
    }

    /// Returns the usage of all ready pods and their running containers.
    pub async fn all_sandbox_stats(&self) -> StatsList<SandboxStats> {
        let changes = self.changes();
        let targets = self.all_targets(true);
        self.measure_and_read(targets, |targets, sampled| self.sandbox_list(targets, changes, sampled)).await
    }

    /// Returns the last samples of all running containers, no matter how old. Does not count as a request.
    pub fn last_container_stats(&self) -> StatsList<Arc<ContainerStats>> {
        self.container_list(&self.all_targets(false), self.changes(), true)
    }

    /// Returns the last samples of all ready pods, no matter how old. Does not count as a request.
    pub fn last_sandbox_stats(&self) -> StatsList<SandboxStats> {
        self.sandbox_list(&self.all_targets(true), self.changes(), true)
    }

    /// Returns a receiver of the number of rounds in which all pods and containers were sampled in the background.
    pub fn stats_rounds(&self) -> watch::Receiver<u64> {
        self.0.stats.rounds()
    }

    async fn pod_stats(&self, sandboxes: Vec<Arc<Sandbox>>) -> Vec<SandboxStats> {
        let mut containers = match sandboxes.as_slice() {
            [one] => self.0.containers_of(one.id()),
            _ => self.0.containers(),
        };
        containers.retain(|container| container.is_running());
        if sandboxes.len() > 1 {
            let ids: HashSet<&str> = sandboxes.iter().map(|sandbox| sandbox.id()).collect();
            containers.retain(|container| ids.contains(container.metadata.sandbox.as_str()));
        }
        self.measure_and_read(Targets { containers, sandboxes }, |targets, _| gather(&self.0, targets)).await
    }

    fn all_targets(&self, pods: bool) -> Targets {
        let mut containers = self.0.containers();
        containers.retain(|container| container.is_running());
        let mut sandboxes = if pods { self.0.sandboxes() } else { Vec::new() };
        sandboxes.retain(|sandbox| sandbox.is_ready());
        Targets { containers, sandboxes }
    }

    /// Returns the number of changes. Must be called before the objects that a list is made of are read.
    fn changes(&self) -> u64 {
        self.0.records.events().changes()
    }

    fn container_list(&self, targets: &Targets, changes: u64, sampled: bool) -> StatsList<Arc<ContainerStats>> {
        let stats = self.0.stats.containers(&targets.containers);
        let complete = sampled && stats.len() == targets.containers.len();
        let oldest = stats.iter().map(|stats| stats.at).min().filter(|_| complete);
        StatsList { validity: oldest.map(|oldest| validity(targets, changes, oldest)), stats }
    }

    fn sandbox_list(&self, targets: &Targets, changes: u64, sampled: bool) -> StatsList<SandboxStats> {
        let stats = gather(&self.0, targets);
        let containers = stats.iter().flat_map(|pod| &pod.containers).map(|stats| stats.at);
        let measured = stats.iter().map(|pod| pod.containers.len()).sum::<usize>();
        let complete = sampled && stats.len() == targets.sandboxes.len() && measured == targets.containers.len();
        let oldest = stats.iter().map(|pod| pod.sample.at).chain(containers).min().filter(|_| complete);
        StatsList { validity: oldest.map(|oldest| validity(targets, changes, oldest)), stats }
    }

    /// Takes samples that are missing or too old, calls `read` to make the response, and then schedules further samples
    /// for the next request: after `read`, so that no object is reported twice with the same sample. The second
    /// argument of `read` is true if nothing had to be measured.
    async fn measure_and_read<T>(&self, targets: Targets, read: impl FnOnce(&Targets, bool) -> T) -> T {
        let due: DueSamples = self.0.stats.due(&targets, clock::now());
        let (background, sampled) = (due.background, due.background && due.is_empty());
        if !due.is_empty() {
            let engine = Arc::clone(&self.0);
            let measured = blocking(move || {
                engine.stats.measure(&engine, &due);
                Ok(())
            });
            // This fails only due to a bug or at the end of the runtime: then the previous samples are used.
            let _ = measured.await;
        }
        let response = read(&targets, sampled);
        self.0.stats.note_request(&self.0, background);
        response
    }
}

fn validity(targets: &Targets, changes: u64, oldest: u64) -> Validity {
    Validity { changes, count: targets.containers.len() + targets.sandboxes.len(), oldest }
}

fn gather(engine: &Inner, targets: &Targets) -> Vec<SandboxStats> {
    let mut by_sandbox: HashMap<String, Vec<Arc<ContainerStats>>> = HashMap::new();
    for container in engine.stats.containers(&targets.containers) {
        by_sandbox.entry(container.container.sandbox.clone()).or_default().push(container);
    }
    let samples = engine.stats.sandboxes(&targets.sandboxes).into_iter();
    samples
        .map(|sample| {
            let containers = by_sandbox.remove(&sample.sandbox.id).unwrap_or_default();
            SandboxStats { sample, containers }
        })
        .collect()
}
