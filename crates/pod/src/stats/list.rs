//! The questions.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use tokio::sync::watch;

use super::{
    ContainerStats, Hold, Sampled, SandboxStats,
    sampler::{Due, Wanted},
};
use crate::{
    Engine, Error, clock,
    engine::{Inner, blocking},
    sandbox::Sandbox,
};

type Labels = BTreeMap<String, String>;

impl Engine {
    /// What one container uses, measured now.
    ///
    /// # Errors
    /// `NotFound` for one that does not run.
    pub async fn container_stats(&self, id: &str) -> Result<Arc<ContainerStats>, Error> {
        let container = self.0.container(id)?;
        let missing = || Error::not_found("running container", container.id());
        if !container.is_running() {
            return Err(missing());
        }
        let wanted = Wanted { containers: vec![Arc::clone(&container)], sandboxes: Vec::new() };
        self.look(wanted, |_, _| self.0.stats.container(container.id())).await.ok_or_else(missing)
    }

    /// What running containers use: those that `wanted` says, by id, pod's id and labels. One that cannot be measured
    /// is left out, never a failed list.
    pub async fn list_container_stats(&self, wanted: impl Fn(&str, &str, &Labels) -> bool) -> Vec<Arc<ContainerStats>> {
        let mut containers = self.0.containers();
        containers.retain(|container| {
            let metadata = &container.metadata;
            container.is_running() && wanted(&metadata.id, &metadata.sandbox, &metadata.config.labels)
        });
        let wanted = Wanted { containers, sandboxes: Vec::new() };
        self.look(wanted, |wanted, _| self.0.stats.containers(&wanted.containers)).await
    }

    /// What one pod and its running containers use, measured now.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn sandbox_stats(&self, id: &str) -> Result<SandboxStats, Error> {
        let sandbox = self.0.sandbox(id)?;
        let found = self.look_at(vec![Arc::clone(&sandbox)]).await;
        found.into_iter().next().ok_or_else(|| Error::not_found("pod", sandbox.id()))
    }

    /// What pods and their running containers use: of the ready pods those that `wanted` says, by id and labels.
    pub async fn list_sandbox_stats(&self, wanted: impl Fn(&str, &Labels) -> bool) -> Vec<SandboxStats> {
        let mut sandboxes = self.0.sandboxes();
        sandboxes.retain(|sandbox| sandbox.is_ready() && wanted(sandbox.id(), &sandbox.config().labels));
        self.look_at(sandboxes).await
    }

    /// What all running containers use.
    pub async fn all_container_stats(&self) -> Sampled<Arc<ContainerStats>> {
        let changes = self.before();
        self.look(self.everything(false), |wanted, sampled| self.containers_of(wanted, changes, sampled)).await
    }

    /// What all ready pods and their running containers use.
    pub async fn all_sandbox_stats(&self) -> Sampled<SandboxStats> {
        let changes = self.before();
        self.look(self.everything(true), |wanted, sampled| self.pods_of(wanted, changes, sampled)).await
    }

    /// The samples of all running containers as they are, however old; this does not count as asking.
    pub fn last_container_stats(&self) -> Sampled<Arc<ContainerStats>> {
        self.containers_of(&self.everything(false), self.before(), true)
    }

    /// The samples of all ready pods as they are, however old; this does not count as asking.
    pub fn last_sandbox_stats(&self) -> Sampled<SandboxStats> {
        self.pods_of(&self.everything(true), self.before(), true)
    }

    /// Changes when the background has sampled all pods and containers once more.
    pub fn stats_rounds(&self) -> watch::Receiver<u64> {
        self.0.stats.rounds()
    }

    async fn look_at(&self, sandboxes: Vec<Arc<Sandbox>>) -> Vec<SandboxStats> {
        let mut containers = match sandboxes.as_slice() {
            [one] => self.0.containers_of(one.id()),
            _ => self.0.containers(),
        };
        containers.retain(|container| container.is_running());
        if sandboxes.len() > 1 {
            let ids: HashSet<&str> = sandboxes.iter().map(|sandbox| sandbox.id()).collect();
            containers.retain(|container| ids.contains(container.metadata.sandbox.as_str()));
        }
        self.look(Wanted { containers, sandboxes }, |wanted, _| gather(&self.0, wanted)).await
    }

    fn everything(&self, pods: bool) -> Wanted {
        let mut containers = self.0.containers();
        containers.retain(|container| container.is_running());
        let mut sandboxes = if pods { self.0.sandboxes() } else { Vec::new() };
        sandboxes.retain(|sandbox| sandbox.is_ready());
        Wanted { containers, sandboxes }
    }

    /// Taken before what it is about is looked at.
    fn before(&self) -> u64 {
        self.0.records.events().changes()
    }

    fn containers_of(&self, wanted: &Wanted, changes: u64, sampled: bool) -> Sampled<Arc<ContainerStats>> {
        let stats = self.0.stats.containers(&wanted.containers);
        let whole = sampled && stats.len() == wanted.containers.len();
        let oldest = stats.iter().map(|stats| stats.at).min().filter(|_| whole);
        Sampled { hold: oldest.map(|oldest| hold(wanted, changes, oldest)), stats }
    }

    fn pods_of(&self, wanted: &Wanted, changes: u64, sampled: bool) -> Sampled<SandboxStats> {
        let stats = gather(&self.0, wanted);
        let containers = stats.iter().flat_map(|pod| &pod.containers).map(|stats| stats.at);
        let measured = stats.iter().map(|pod| pod.containers.len()).sum::<usize>();
        let whole = sampled && stats.len() == wanted.sandboxes.len() && measured == wanted.containers.len();
        let oldest = stats.iter().map(|pod| pod.sample.at).chain(containers).min().filter(|_| whole);
        Sampled { hold: oldest.map(|oldest| hold(wanted, changes, oldest)), stats }
    }

    /// Has samples taken that are missing or too old, calls `read` for the answer, and has more samples taken for the
    /// next request: after `read`, so that no object is reported twice with one sample. `read` also gets whether
    /// nothing had to be measured.
    async fn look<T>(&self, wanted: Wanted, read: impl FnOnce(&Wanted, bool) -> T) -> T {
        let due: Due = self.0.stats.due(&wanted, clock::now());
        let (more, sampled) = (due.more, due.more && due.is_empty());
        if !due.is_empty() {
            let engine = Arc::clone(&self.0);
            let measured = blocking(move || {
                engine.stats.measure(&engine, &due);
                Ok(())
            });
            // It fails only by a bug or at the end of the runtime: then there are the samples of before.
            let _ = measured.await;
        }
        let answer = read(&wanted, sampled);
        self.0.stats.asked(&self.0, more);
        answer
    }
}

fn hold(wanted: &Wanted, changes: u64, oldest: u64) -> Hold {
    Hold { changes, count: wanted.containers.len() + wanted.sandboxes.len(), oldest }
}

fn gather(engine: &Inner, wanted: &Wanted) -> Vec<SandboxStats> {
    let mut by_sandbox: HashMap<String, Vec<Arc<ContainerStats>>> = HashMap::new();
    for container in engine.stats.containers(&wanted.containers) {
        by_sandbox.entry(container.container.sandbox.clone()).or_default().push(container);
    }
    let samples = engine.stats.sandboxes(&wanted.sandboxes).into_iter();
    samples
        .map(|sample| {
            let containers = by_sandbox.remove(&sample.sandbox.id).unwrap_or_default();
            SandboxStats { sample, containers }
        })
        .collect()
}
