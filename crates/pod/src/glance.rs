//! Lists without copies: what a row of a list shows of each pod and container.

use crate::{
    ContainerConfig, ContainerState, Engine, SandboxConfig, SandboxState,
    container::{Container, ContainerPhase},
    sandbox::{Sandbox, SandboxPhase},
};

/// What a list shows of a container.
#[derive(Debug)]
pub struct ContainerGlance<'a> {
    /// 64 hex digits.
    pub id: &'a str,
    /// Its sandbox's id.
    pub sandbox: &'a str,
    /// What was asked for.
    pub config: &'a ContainerConfig,
    /// `sha256:…`
    pub image_id: &'a str,
    /// Where it stands.
    pub state: ContainerState,
    /// When it was made, nanoseconds since the epoch.
    pub created_at: u64,
    /// Whether its operation runs: whoever asked for it has no id of it yet.
    pub making: bool,
    /// Whether it was made. Before, what is shown here changes without notice ([`Engine::mark`]).
    pub settled: bool,
}

/// What a list shows of a pod.
#[derive(Debug)]
pub struct SandboxGlance<'a> {
    /// 64 hex digits.
    pub id: &'a str,
    /// What was asked for.
    pub config: &'a SandboxConfig,
    /// Whether containers can be made in it.
    pub state: SandboxState,
    /// When it was made, nanoseconds since the epoch.
    pub created_at: u64,
    /// Whether its operation runs: whoever asked for it has no id of it yet.
    pub making: bool,
    /// As [`ContainerGlance::settled`].
    pub settled: bool,
}

impl Engine {
    /// All containers, the oldest first.
    pub fn glance_at_containers<T>(&self, mut each: impl FnMut(&ContainerGlance<'_>) -> Option<T>) -> Vec<T> {
        let mut all = self.0.containers();
        all.sort_by_key(|container| container.metadata.created_at);
        all.iter().filter_map(|container| each(&of_container(container))).collect()
    }

    /// All pods, as [`Engine::glance_at_containers`].
    pub fn glance_at_sandboxes<T>(&self, mut each: impl FnMut(&SandboxGlance<'_>) -> Option<T>) -> Vec<T> {
        let mut all = self.0.sandboxes();
        all.sort_by_key(|sandbox| sandbox.metadata.created_at);
        all.iter().filter_map(|sandbox| each(&of_sandbox(sandbox))).collect()
    }
}

fn of_container(container: &Container) -> ContainerGlance<'_> {
    let metadata = &container.metadata;
    ContainerGlance {
        id: &metadata.id,
        sandbox: &metadata.sandbox,
        config: &metadata.config,
        image_id: &metadata.image_id,
        state: container.state(),
        created_at: metadata.created_at,
        making: container.is_making(),
        settled: container.record().phase != ContainerPhase::Creating,
    }
}

fn of_sandbox(sandbox: &Sandbox) -> SandboxGlance<'_> {
    SandboxGlance {
        id: sandbox.id(),
        config: sandbox.config(),
        state: if sandbox.is_ready() { SandboxState::Ready } else { SandboxState::NotReady },
        created_at: sandbox.metadata.created_at,
        making: sandbox.is_making(),
        settled: matches!(sandbox.record().phase, SandboxPhase::Ready | SandboxPhase::Stopped),
    }
}
