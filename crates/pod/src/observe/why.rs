//! `pinion why`: the history of a pod or container, what it waits for, and what the kernel reports about its exit.
//!
//! Nothing here is guessed: what the kernel does not report is described as unknown.

mod exit;
mod kernel_log;
mod oom;

use std::sync::Arc;

use super::failures::{Failure, Failures};
use crate::{
    Error, ObjectId, ObjectKind, ObjectState, SandboxId, Wait,
    node::Node,
    store::{Container, ContainerPhase, Registry, Sandbox, SandboxPhase, Stage},
};

pub use exit::ContainerExit;
pub use kernel_log::{Denial, DeniedBy};
pub use oom::{OomKill, OomLimit};

/// What is known about one pod or container. Times are in nanoseconds since the epoch.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Id of the object, also of one that could not be created.
    pub id: ObjectId,
    /// `namespace/name` of a pod, or the name of a container.
    pub name: String,
    /// Id of a container's pod.
    pub pod: Option<SandboxId>,
    /// Its state.
    pub state: ObjectState,
    /// Current stage.
    pub stage: String,
    /// When the current stage began.
    pub since: u64,
    /// What it waits for now; absent if it does not wait.
    pub waits_for: Option<Wait>,
    /// Why it failed; empty if it did not.
    pub failure: String,
    /// Exit of a container.
    pub end: Option<ContainerExit>,
    /// The memory limit that was reached, if a process of it was killed by the OOM killer.
    pub oom: Option<OomKill>,
    /// What was denied to it according to the kernel log.
    pub denied: Vec<Denial>,
    /// Stages, the oldest first.
    pub timeline: Vec<Stage>,
}

/// What is known of objects.
pub(crate) struct Sources<'a> {
    pub(crate) node: &'a Node,
    pub(crate) registry: &'a Registry,
    pub(crate) failures: &'a Failures,
}

impl Sources<'_> {
    /// Explains the pod or container with this id, prefix of an id, name, `namespace/name` or `pod/container`; a pod
    /// with its containers. An empty string stands for all objects that are being created, and all that recently could
    /// not be created or started.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn why(&self, selector: &str) -> Result<Vec<Explanation>, Error> {
        let log = kernel_log::read();
        let mut explanations = Vec::new();
        for sandbox in self.registry.sandboxes() {
            let name = &sandbox.config().name;
            let full_name = format!("{}/{}", name.namespace, name.name);
            let selected = matches(selector, sandbox.id().as_str(), &[&name.name, &full_name]);
            let stuck = selector.is_empty() && is_stuck(&sandbox);
            if selected || stuck {
                explanations.push(explain_sandbox(self.node, &sandbox));
            }
            for container in self.registry.containers_of(sandbox.id()) {
                let short = &container.config().name;
                let names = [short.clone(), format!("{}/{short}", name.name), format!("{full_name}/{short}")];
                let creating = selector.is_empty() && container.record().phase == ContainerPhase::Creating;
                if selected
                    || creating
                    || matches(selector, container.id().as_str(), &names.each_ref().map(String::as_str))
                {
                    explanations.push(explain_container(self.node, &container, &log));
                }
            }
        }
        for failure in self.failures.all() {
            if selector.is_empty()
                || matches(
                    selector,
                    failure.id.as_str(),
                    &[&failure.name, failure.name.rsplit('/').next().unwrap_or("")],
                )
            {
                explanations.push(explain_failure(failure));
            }
        }
        if explanations.is_empty() && !selector.is_empty() {
            return Err(Error::not_found("pod or container", selector));
        }
        Ok(explanations)
    }
}

fn matches(selector: &str, id: &str, names: &[&str]) -> bool {
    !selector.is_empty() && (id.starts_with(selector) || names.contains(&selector))
}

fn is_stuck(sandbox: &Sandbox) -> bool {
    let record = sandbox.record();
    let failed = record.timeline.stages().iter().rfind(|stage| !stage.part).is_some_and(|now| !now.failure.is_empty());
    failed || matches!(record.phase, SandboxPhase::Reserved | SandboxPhase::Networked)
}

/// Returns name, begin and failure of the last stage of a timeline.
fn last_stage(stages: &[Stage]) -> (String, u64, String) {
    let last = stages.iter().rfind(|stage| !stage.part);
    last.map(|stage| (stage.name.clone(), stage.began, stage.failure.clone())).unwrap_or_default()
}

fn explain_sandbox(node: &Node, sandbox: &Sandbox) -> Explanation {
    let record = sandbox.record();
    let mut timeline = record.timeline.stages().to_vec();
    let (stage, since, failure) = last_stage(&timeline);
    let last_part = timeline.iter().filter(|stage| stage.part).map(|stage| stage.began).max().unwrap_or(0);
    let mut waits_for = sandbox.is_creating().then(|| Wait::Stage(stage.clone()));
    for call in node.network.calls(sandbox.id().as_str()).into_iter().filter(|call| call.began > last_part) {
        let name = format!("CNI plugin {} {}", call.plugin, call.command);
        let ended = call.took.map_or(0, |took| call.began + u64::try_from(took.as_nanos()).unwrap_or(0));
        if ended == 0 {
            waits_for = Some(Wait::NetworkPlugin { name: call.plugin.clone(), command: call.command.clone() });
        }
        timeline.push(Stage { name, began: call.began, ended, part: true, failure: call.failure });
    }
    let state = match record.phase {
        SandboxPhase::Ready => ObjectState::Ready,
        SandboxPhase::Stopped => ObjectState::Stopped,
        _ if sandbox.is_creating() => ObjectState::BeingCreated,
        _ => ObjectState::NotReady,
    };
    let name = &sandbox.config().name;
    Explanation {
        kind: ObjectKind::Pod,
        id: ObjectId::Sandbox(sandbox.id().clone()),
        name: format!("{}/{}", name.namespace, name.name),
        pod: None,
        state,
        failure,
        stage,
        since,
        waits_for,
        end: None,
        oom: None,
        denied: Vec::new(),
        timeline,
    }
}

fn explain_container(node: &Node, container: &Arc<Container>, log: &[String]) -> Explanation {
    let (record, status) = (container.record(), container.status());
    let timeline = record.timeline.stages().to_vec();
    let (stage, since, _) = last_stage(&timeline);
    let waits_for = match record.phase {
        ContainerPhase::Creating if status.creating => Some(Wait::Stage(stage.clone())),
        ContainerPhase::Created => Some(Wait::Start),
        ContainerPhase::Starting => Some(Wait::Execve),
        ContainerPhase::Running if record.sent.is_stopping() => Some(Wait::Exit),
        _ => None,
    };
    let state = match record.phase {
        ContainerPhase::Creating if status.creating => ObjectState::BeingCreated,
        ContainerPhase::Creating => ObjectState::RollbackPending,
        ContainerPhase::Created => ObjectState::Created,
        ContainerPhase::Starting => ObjectState::Starting,
        ContainerPhase::Running => ObjectState::Running,
        ContainerPhase::Exited => ObjectState::Exited,
    };
    Explanation {
        kind: ObjectKind::Container,
        id: ObjectId::Container(container.id().clone()),
        name: container.config().name.clone(),
        pod: Some(container.metadata.sandbox.clone()),
        state,
        stage,
        since,
        waits_for,
        failure: record.message.clone(),
        end: exit::describe_exit(&record),
        oom: oom::find_oom_kill(node, container, &record, log),
        denied: kernel_log::denied(container, &record, log),
        timeline,
    }
}

fn explain_failure(failed: Failure) -> Explanation {
    let (stage, ..) = last_stage(&failed.timeline);
    Explanation {
        kind: if failed.sandbox.is_some() { ObjectKind::Container } else { ObjectKind::Pod },
        id: failed.id,
        name: failed.name,
        pod: failed.sandbox,
        state: failed.state,
        stage,
        since: failed.at,
        waits_for: None,
        failure: failed.why,
        end: None,
        oom: None,
        denied: Vec::new(),
        timeline: failed.timeline,
    }
}
