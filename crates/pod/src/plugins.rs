//! Plugins of the Node Resource Interface: what they learn of pods and containers.
//!
//! | event | where | a plugin that refuses it |
//! |---|---|---|
//! | `RunPodSandbox` | the pod is networked and not ready yet | fails the request, which is rolled back |
//! | `CreateContainer` | the specification is built, and nothing was created from it | the same |
//! | `StartContainer`, `UpdateContainer`, `UpdatePodSandbox` | before the change | fails the request |
//! | all others | after the change | is logged; the event reaches the other plugins |
//!
//! Without plugins an event costs one atomic load: the messages are built only if there is a plugin to send them to.

mod describe;
pub(crate) mod resources;

use std::sync::Arc;

use nri::{Event, Round, messages};
use oci::NamespaceType;

use crate::{
    Error, ErrorKind, SandboxConfig,
    operation::blocking,
    parts::Parts,
    store::{Container, Sandbox},
};

pub(crate) use describe::{container as describe_container, pod as describe_pod};

/// Kinds of namespaces by their names in the protocol, which are those of the runtime specification.
const NAMESPACES: [(&str, NamespaceType); 8] = [
    ("pid", NamespaceType::Pid),
    ("network", NamespaceType::Network),
    ("ipc", NamespaceType::Ipc),
    ("uts", NamespaceType::Uts),
    ("mount", NamespaceType::Mount),
    ("user", NamespaceType::User),
    ("cgroup", NamespaceType::Cgroup),
    ("time", NamespaceType::Time),
];

/// Returns the kind of namespaces that a name refers to.
pub(crate) fn namespace_kind(name: &str) -> Option<NamespaceType> {
    NAMESPACES.into_iter().find(|(known, _)| *known == name).map(|(_, kind)| kind)
}

fn namespace_name(kind: NamespaceType) -> &'static str {
    NAMESPACES.into_iter().find(|(_, known)| *known == kind).map_or("", |(name, _)| name)
}

impl From<nri::Error> for Error {
    fn from(error: nri::Error) -> Self {
        let kind = match error.kind {
            nri::ErrorKind::Unavailable => ErrorKind::Unavailable,
            nri::ErrorKind::Refused => ErrorKind::FailedPrecondition,
        };
        Self::new(kind, error.message)
    }
}

/// Returns the plugins that must handle the creation of a container; `container` is empty for the pod. Waits for absent
/// ones for a few seconds.
pub(crate) async fn require(parts: &Parts, pod: &SandboxConfig, container: &str) -> Result<Vec<String>, Error> {
    match &parts.plugins {
        Some(plugins) => Ok(plugins.require(&pod.annotations, container).await?),
        None => Ok(Vec::new()),
    }
}

/// Returns the plugins that the creation of a container goes to. Fails if there are none although some are required.
pub(crate) fn admit(parts: &Parts, container: &Container, required: &[String]) -> Result<Option<Round>, Error> {
    let Some(plugins) = parts.plugins.as_ref().filter(|_| !container.is_sandbox_container()) else { return Ok(None) };
    let round = plugins.admit(container.id().as_str(), &container.known_to_plugins);
    if round.is_none() {
        nri::Plugins::check_without(required)?;
    }
    Ok(round)
}

/// Returns the plugins that an event goes to, if there are any.
pub(crate) fn round(parts: &Parts) -> Option<Round> {
    parts.plugins.as_ref()?.round()
}

/// Announces a pod that is about to become ready.
pub(crate) async fn run_pod(parts: &Parts, sandbox: &Sandbox, required: &[String]) -> Result<(), Error> {
    let Some(plugins) = &parts.plugins else { return Ok(()) };
    plugins.check(required)?;
    let Some(round) = plugins.admit(sandbox.id().as_str(), &sandbox.known_to_plugins) else {
        return Ok(nri::Plugins::check_without(required)?);
    };
    round.check(required)?;
    sandbox.stage("announce it to NRI plugins");
    Ok(round.pod_event(Event::RunPodSandbox, &describe_pod(parts, sandbox), required).await?)
}

/// Announces what happened to a pod. What a plugin responds does not matter anymore.
pub(crate) async fn pod_event(parts: &Parts, event: Event, sandbox: &Sandbox) {
    let Some(round) = round(parts) else { return };
    round.announce_pod(event, &describe_pod(parts, sandbox)).await;
}

/// Announces a pod that is about to be updated.
pub(crate) async fn update_pod(
    parts: &Parts,
    sandbox: &Sandbox,
    overhead: Option<&oci::Resources>,
    resources: Option<&oci::Resources>,
) -> Result<(), Error> {
    let Some(round) = round(parts) else { return Ok(()) };
    let (overhead, resources) = (overhead.map(resources::to_message), resources.map(resources::to_message));
    Ok(round.update_pod(&describe_pod(parts, sandbox), overhead, resources).await?)
}

/// Returns a round of messages about a container. There is none about a sandbox container, which plugins do not know.
fn round_about(parts: &Parts, container: &Container) -> Option<Round> {
    if container.is_sandbox_container() { None } else { round(parts) }
}

/// Announces a container that is about to be started.
pub(crate) async fn start_container(parts: &Arc<Parts>, container: &Arc<Container>) -> Result<(), Error> {
    let Some(round) = round_about(parts, container) else { return Ok(()) };
    let (pod, message) = messages_of(parts, container).await;
    Ok(round.container_event(Event::StartContainer, pod.as_ref(), &message).await?)
}

/// Announces what happened to a container. What a plugin responds does not matter anymore.
pub(crate) async fn container_event(parts: &Arc<Parts>, event: Event, container: &Arc<Container>) {
    let Some(round) = round_about(parts, container) else { return };
    let (pod, message) = messages_of(parts, container).await;
    round.announce_container(event, pod.as_ref(), &message).await;
}

/// Returns the messages that describe a container and its pod, for the event of its removal; `None` without plugins.
pub(crate) async fn removal_messages(parts: &Arc<Parts>, container: &Arc<Container>) -> Option<Messages> {
    round_about(parts, container)?;
    Some(messages_of(parts, container).await)
}

/// Announces a container that was removed, also to a plugin that joined while it was: without `messages` from before the
/// removal, the container is described without its specification.
pub(crate) async fn removed(parts: &Arc<Parts>, container: &Arc<Container>, messages: Option<Messages>) {
    let Some(round) = round_about(parts, container) else { return };
    let (pod, message) = match messages {
        Some(messages) => messages,
        None => messages_of(parts, container).await,
    };
    round.announce_container(Event::RemoveContainer, pod.as_ref(), &message).await;
}

/// A container, and its pod if that still exists.
pub(crate) type Messages = (Option<messages::Pod>, messages::Container);

/// Describes a container and its pod. Reads the specification of the container.
pub(crate) async fn messages_of(parts: &Arc<Parts>, container: &Arc<Container>) -> Messages {
    let pod = parts.registry.sandbox(&container.metadata.sandbox).ok();
    let pod = pod.map(|sandbox| describe_pod(parts, &sandbox));
    let (task_parts, task_container) = (Arc::clone(parts), Arc::clone(container));
    let read = blocking(move || Ok(task_container.spec(&task_parts.registry.records).ok())).await;
    (pod, describe_container(container, read.ok().flatten().as_ref()))
}
