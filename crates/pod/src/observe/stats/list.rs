//! Requests for statistics.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::sync::watch;

use super::{
    guest::{self, LIST_PATIENCE, POD_PATIENCE},
    known_sample::{STALE, is_younger},
    sampler::{DueSamples, Sampler},
    subjects::{Subjects, Targets},
    validity::{Generation, Validity},
};
use crate::{
    ContainerId, ContainerStats, Error, SandboxId, SandboxStats, Selects, StatsList, clock,
    node::Node,
    operation::blocking,
    store::{Registry, Sandbox},
};

type Labels = BTreeMap<String, String>;

/// Statistics of all objects.
pub(crate) struct Statistics {
    sampler: Arc<Sampler>,
    subjects: Arc<Subjects>,
}

impl Statistics {
    pub(crate) fn new(node: &Arc<Node>, registry: &Arc<Registry>) -> Self {
        let subjects = Subjects { node: Arc::clone(node), registry: Arc::clone(registry) };
        Self { sampler: Arc::default(), subjects: Arc::new(subjects) }
    }

    /// Removes the samples of a container that was removed.
    pub(crate) fn forget_container(&self, id: &ContainerId) {
        self.sampler.forget_container(id);
    }

    /// Removes the samples of a pod that was removed.
    pub(crate) fn forget_sandbox(&self, id: &SandboxId) {
        self.sampler.forget_sandbox(id);
    }

    /// Measures one container now.
    ///
    /// # Errors
    /// `NotFound` if it is unknown or not running.
    pub(crate) async fn container_stats(
        &self,
        id: &(impl Selects<ContainerId> + ?Sized),
    ) -> Result<Arc<ContainerStats>, Error> {
        let container = self.subjects.registry.container(id)?;
        let missing = || Error::not_found("running container", container.id().as_str());
        if !container.is_running() {
            return Err(missing());
        }
        let targets = Targets { containers: vec![Arc::clone(&container)], sandboxes: Vec::new() };
        let sample = self
            .measure_and_read(targets, POD_PATIENCE, |targets, _| self.sampler.containers(&targets.containers).pop());
        sample.await.ok_or_else(|| match guest::is_in_guest(&container) && container.is_running() {
            true => guest::not_reported(&container),
            false => missing(),
        })
    }

    /// Returns the usage of the running containers that `filter` accepts, given id, id of the pod, and labels. A
    /// container that cannot be measured is omitted.
    pub(crate) async fn list_container_stats(
        &self,
        filter: impl Fn(&ContainerId, &SandboxId, &Labels) -> bool,
    ) -> Vec<Arc<ContainerStats>> {
        let mut containers = self.subjects.registry.listed_containers();
        containers.retain(|container| {
            let metadata = &container.metadata;
            container.is_running() && filter(&metadata.id, &metadata.sandbox, &metadata.config.labels)
        });
        let targets = Targets { containers, sandboxes: Vec::new() };
        let patience = guest::patience(&targets);
        self.measure_and_read(targets, patience, |targets, _| self.sampler.containers(&targets.containers)).await
    }

    /// Measures one pod and its running containers now.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) async fn sandbox_stats(&self, id: &(impl Selects<SandboxId> + ?Sized)) -> Result<SandboxStats, Error> {
        let sandbox = self.subjects.registry.sandbox(id)?;
        let stats = self.pod_stats(vec![Arc::clone(&sandbox)]).await;
        stats.into_iter().next().ok_or_else(|| Error::not_found("pod", sandbox.id().as_str()))
    }

    /// Returns the usage of the ready pods that `filter` accepts, given id and labels, and of their running containers.
    pub(crate) async fn list_sandbox_stats(&self, filter: impl Fn(&SandboxId, &Labels) -> bool) -> Vec<SandboxStats> {
        let mut sandboxes = self.subjects.registry.sandboxes();
        sandboxes.retain(|sandbox| sandbox.is_ready() && filter(sandbox.id(), &sandbox.config().labels));
        self.pod_stats(sandboxes).await
    }

    /// Returns the usage of all running containers.
    pub(crate) async fn all_container_stats(&self) -> StatsList<Arc<ContainerStats>> {
        let changes = self.changes();
        let targets = self.all_targets(false);
        self.measure_and_read(targets, LIST_PATIENCE, |targets, sampled| self.container_list(targets, changes, sampled))
            .await
    }

    /// Returns the usage of all ready pods and their running containers.
    pub(crate) async fn all_sandbox_stats(&self) -> StatsList<SandboxStats> {
        let changes = self.changes();
        let targets = self.all_targets(true);
        self.measure_and_read(targets, LIST_PATIENCE, |targets, sampled| self.sandbox_list(targets, changes, sampled))
            .await
    }

    /// Returns the last samples of all running containers, no matter how old. Does not count as a request.
    pub(crate) fn last_container_stats(&self) -> StatsList<Arc<ContainerStats>> {
        self.container_list(&self.all_targets(false), self.changes(), true)
    }

    /// Returns the last samples of all ready pods, no matter how old. Does not count as a request.
    pub(crate) fn last_sandbox_stats(&self) -> StatsList<SandboxStats> {
        self.sandbox_list(&self.all_targets(true), self.changes(), true)
    }

    /// Returns the current generation of the lists of pods and containers; resource usage does not affect it. A list
    /// that is made after this call, and omits objects that are being created ([`crate::ContainerSummary::settled`]),
    /// stays the same as long as the generation does.
    pub(crate) fn generation(&self) -> Generation {
        Generation(self.changes())
    }

    /// Reports whether a list of all objects would still have the same pods and containers, and its samples are not too
    /// old. Counts as a request: samples continue to be taken.
    pub(crate) fn is_valid(&self, validity: &Validity) -> bool {
        let sampler = &self.sampler;
        let valid = validity.changes == self.generation().0
            && is_younger(validity.oldest, STALE, clock::now())
            && !sampler.is_quick(validity.count);
        if valid {
            sampler.note_request(&self.subjects, true);
        }
        valid
    }

    /// Returns a receiver of the number of rounds in which all pods and containers were sampled in the background.
    pub(crate) fn stats_rounds(&self) -> watch::Receiver<u64> {
        self.sampler.rounds()
    }

    async fn pod_stats(&self, sandboxes: Vec<Arc<Sandbox>>) -> Vec<SandboxStats> {
        let mut containers = match sandboxes.as_slice() {
            [one] => self.subjects.registry.listed_containers_of(one.id()),
            _ => self.subjects.registry.listed_containers(),
        };
        containers.retain(|container| container.is_running());
        if sandboxes.len() > 1 {
            let ids: HashSet<&SandboxId> = sandboxes.iter().map(|sandbox| sandbox.id()).collect();
            containers.retain(|container| ids.contains(&container.metadata.sandbox));
        }
        let targets = Targets { containers, sandboxes };
        let patience = guest::patience(&targets);
        self.measure_and_read(targets, patience, |targets, _| gather(&self.sampler, targets)).await
    }

    fn all_targets(&self, pods: bool) -> Targets {
        let mut containers = self.subjects.registry.listed_containers();
        containers.retain(|container| container.is_running());
        let mut sandboxes = if pods { self.subjects.registry.sandboxes() } else { Vec::new() };
        sandboxes.retain(|sandbox| sandbox.is_ready());
        Targets { containers, sandboxes }
    }

    /// Returns the number of changes. Must be called before the objects that a list is made of are read.
    fn changes(&self) -> u64 {
        self.subjects.registry.changes()
    }

    fn container_list(&self, targets: &Targets, changes: u64, sampled: bool) -> StatsList<Arc<ContainerStats>> {
        let stats = self.sampler.containers(&targets.containers);
        let oldest = oldest(targets, stats.iter(), std::iter::empty(), sampled);
        StatsList { validity: oldest.map(|oldest| validity(targets, changes, oldest)), stats }
    }

    fn sandbox_list(&self, targets: &Targets, changes: u64, sampled: bool) -> StatsList<SandboxStats> {
        let stats = gather(&self.sampler, targets);
        let containers = stats.iter().flat_map(|pod| &pod.containers);
        let oldest = oldest(targets, containers, stats.iter().map(|pod| pod.sample.at), sampled);
        StatsList { validity: oldest.map(|oldest| validity(targets, changes, oldest)), stats }
    }

    /// Takes samples that are missing or too old, calls `read` to make the response, and then schedules further samples
    /// for the next request: after `read`, so that no object is reported twice with the same sample. The second
    /// argument of `read` is true if nothing had to be measured.
    async fn measure_and_read<T>(
        &self,
        targets: Targets,
        patience: Duration,
        read: impl FnOnce(&Targets, bool) -> T,
    ) -> T {
        guest::refresh(&self.subjects, &targets, patience).await;
        let due: DueSamples = self.sampler.due(&targets, clock::now());
        let (background, sampled) = (due.background, due.background && due.is_empty());
        if !due.is_empty() {
            let (sampler, subjects) = (Arc::clone(&self.sampler), Arc::clone(&self.subjects));
            let measured = blocking(move || {
                sampler.measure(&subjects, &due);
                Ok(())
            });
            // This fails only due to a bug or at the end of the runtime: then the previous samples are used.
            let _ = measured.await;
        }
        let response = read(&targets, sampled);
        self.sampler.note_request(&self.subjects, background);
        response
    }
}

/// Returns the time of the oldest sample of a list that may be sent again; `None` if something is missing. Containers in guests do not
/// count: a guest that does not answer must not make every list a new one.
fn oldest<'a>(
    targets: &Targets,
    containers: impl Iterator<Item = &'a Arc<ContainerStats>>,
    pods: impl ExactSizeIterator<Item = u64>,
    sampled: bool,
) -> Option<u64> {
    let guests: HashSet<&ContainerId> = targets
        .containers
        .iter()
        .filter(|container| guest::is_in_guest(container))
        .map(|container| container.id())
        .collect();
    let measured = containers.filter(|stats| !guests.contains(&stats.container.id)).map(|stats| stats.at);
    let measured: Vec<u64> = measured.collect();
    let complete = pods.len() == targets.sandboxes.len() && measured.len() + guests.len() == targets.containers.len();
    measured.into_iter().chain(pods).min().filter(|_| sampled && complete)
}

fn validity(targets: &Targets, changes: u64, oldest: u64) -> Validity {
    Validity { changes, count: targets.containers.len() + targets.sandboxes.len(), oldest }
}

fn gather(sampler: &Sampler, targets: &Targets) -> Vec<SandboxStats> {
    let mut by_sandbox: HashMap<SandboxId, Vec<Arc<ContainerStats>>> = HashMap::new();
    for container in sampler.containers(&targets.containers) {
        by_sandbox.entry(container.container.sandbox.clone()).or_default().push(container);
    }
    let samples = sampler.sandboxes(&targets.sandboxes).into_iter();
    samples
        .map(|sample| {
            let containers = by_sandbox.remove(&sample.sandbox.id).unwrap_or_default();
            SandboxStats { sample, containers }
        })
        .collect()
}
