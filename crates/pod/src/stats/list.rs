//! The questions.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use tokio::sync::watch;

use super::{
    ContainerStats, SandboxStats,
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
        self.look(Wanted { containers: vec![Arc::clone(&container)], sandboxes: Vec::new() }).await;
        self.0.stats.container(container.id()).ok_or_else(missing)
    }

    /// What running containers use: those that `wanted` says, by id, pod's id and labels. One that cannot be measured is
    /// left out, never a failed list.
    pub async fn list_container_stats(&self, wanted: impl Fn(&str, &str, &Labels) -> bool) -> Vec<Arc<ContainerStats>> {
        let mut containers = self.0.containers();
        containers.retain(|container| {
            let metadata = &container.metadata;
            container.is_running() && wanted(&metadata.id, &metadata.sandbox, &metadata.config.labels)
        });
        let wanted = self.look(Wanted { containers, sandboxes: Vec::new() }).await;
        self.0.stats.containers(&wanted.containers)
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

    /// The samples of all ready pods as they are, however old.
    pub fn last_sandbox_stats(&self) -> Vec<SandboxStats> {
        let (mut sandboxes, mut containers) = (self.0.sandboxes(), self.0.containers());
        sandboxes.retain(|sandbox| sandbox.is_ready());
        containers.retain(|container| container.is_running());
        gather(&self.0, &Wanted { containers, sandboxes })
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
        let wanted = self.look(Wanted { containers, sandboxes }).await;
        gather(&self.0, &wanted)
    }

    /// Sees to it that there are samples, and that they will be.
    async fn look(&self, wanted: Wanted) -> Wanted {
        let due: Due = self.0.stats.due(&wanted, clock::now());
        self.0.stats.asked(&self.0, &due);
        if !due.is_empty() {
            let engine = Arc::clone(&self.0);
            let measured = blocking(move || {
                engine.stats.measure(&engine, &due);
                Ok(())
            });
            // It fails only by a bug or at the end of the runtime: then there are the samples of before.
            let _ = measured.await;
        }
        wanted
    }
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
