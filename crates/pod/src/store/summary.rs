//! Summaries of pods and containers for lists, borrowed without copies.

use super::{Container, ContainerPhase, Registry, Sandbox, SandboxPhase};
use crate::{ContainerConfig, ContainerId, ContainerState, SandboxConfig, SandboxId, SandboxState};

/// Summary of a container for a list.
#[derive(Debug)]
pub struct ContainerSummary<'a> {
    /// Id, 64 hex digits.
    pub id: &'a ContainerId,
    /// Id of its sandbox.
    pub sandbox: &'a SandboxId,
    /// The configuration of the request.
    pub config: &'a ContainerConfig,
    /// `sha256:…`
    pub image_id: &'a str,
    /// State of the container.
    pub state: ContainerState,
    /// Time of its creation, in nanoseconds since the epoch.
    pub created_at: u64,
    /// Whether its creation is in progress: the caller does not know its id yet.
    pub creating: bool,
    /// Whether its creation has completed. Before that, this summary changes without a new
    /// [`crate::Engine::generation`].
    pub settled: bool,
}

/// Summary of a pod for a list.
#[derive(Debug)]
pub struct SandboxSummary<'a> {
    /// Id, 64 hex digits.
    pub id: &'a SandboxId,
    /// The configuration of the request.
    pub config: &'a SandboxConfig,
    /// Whether it is ready for containers.
    pub state: SandboxState,
    /// Time of its creation, in nanoseconds since the epoch.
    pub created_at: u64,
    /// Whether its creation is in progress: the caller does not know its id yet.
    pub creating: bool,
    /// As [`ContainerSummary::settled`].
    pub settled: bool,
}

impl Registry {
    /// Calls `each` with the summary of every container, the oldest first, and collects the results.
    pub(crate) fn summarize_containers<T>(&self, mut each: impl FnMut(&ContainerSummary<'_>) -> Option<T>) -> Vec<T> {
        let mut all = self.listed_containers();
        all.sort_by_key(|container| container.metadata.created_at);
        all.iter().filter_map(|container| each(&container_summary(container))).collect()
    }

    /// Calls `each` with the summary of every pod, the oldest first, and collects the results.
    pub(crate) fn summarize_sandboxes<T>(&self, mut each: impl FnMut(&SandboxSummary<'_>) -> Option<T>) -> Vec<T> {
        let mut all = self.sandboxes();
        all.sort_by_key(|sandbox| sandbox.metadata.created_at);
        all.iter().filter_map(|sandbox| each(&sandbox_summary(sandbox))).collect()
    }
}

fn container_summary(container: &Container) -> ContainerSummary<'_> {
    let metadata = &container.metadata;
    ContainerSummary {
        id: &metadata.id,
        sandbox: &metadata.sandbox,
        config: &metadata.config,
        image_id: &metadata.image_id,
        state: container.state(),
        created_at: metadata.created_at,
        creating: container.is_creating(),
        settled: container.record().phase != ContainerPhase::Creating,
    }
}

fn sandbox_summary(sandbox: &Sandbox) -> SandboxSummary<'_> {
    SandboxSummary {
        id: sandbox.id(),
        config: sandbox.config(),
        state: if sandbox.is_ready() { SandboxState::Ready } else { SandboxState::NotReady },
        created_at: sandbox.metadata.created_at,
        creating: sandbox.is_creating(),
        settled: matches!(sandbox.record().phase, SandboxPhase::Ready | SandboxPhase::Stopped),
    }
}
