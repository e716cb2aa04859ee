use std::collections::{BTreeMap, HashMap};

use cri_proto::v1;
use pod::{ContainerId, ContainerSummary, SandboxId, SandboxSummary};

use super::{container, sandbox};

type Labels = BTreeMap<String, String>;

/// Reports whether `labels` contains all labels of `selector`. An empty selector matches everything.
fn has_labels(labels: &Labels, selector: &HashMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// `PodSandboxFilter` and `PodSandboxStatsFilter`: an id prefix, a state, labels.
#[derive(Default)]
pub(crate) struct SandboxFilter {
    id: String,
    state: Option<i32>,
    labels: HashMap<String, String>,
}

impl From<Option<v1::PodSandboxFilter>> for SandboxFilter {
    fn from(message: Option<v1::PodSandboxFilter>) -> Self {
        let message = message.unwrap_or_default();
        Self { id: message.id, state: message.state.map(|s| s.state), labels: message.label_selector }
    }
}

impl From<Option<v1::PodSandboxStatsFilter>> for SandboxFilter {
    fn from(message: Option<v1::PodSandboxStatsFilter>) -> Self {
        let message = message.unwrap_or_default();
        Self { id: message.id, state: None, labels: message.label_selector }
    }
}

impl SandboxFilter {
    /// Reports whether the filter matches everything.
    pub(crate) fn is_none(&self) -> bool {
        self.id.is_empty() && self.state.is_none() && self.labels.is_empty()
    }

    /// Matches the id and the labels, but not the state.
    pub(crate) fn matches_labels(&self, id: &SandboxId, labels: &Labels) -> bool {
        id.as_str().starts_with(&self.id) && has_labels(labels, &self.labels)
    }

    pub(crate) fn matches(&self, pod: &SandboxSummary<'_>) -> bool {
        // The id of a pod that is being created is not known to any client yet: a client that repeats its request joins
        // the creation. If the list contained the pod, in the state NOTREADY, kubelet would give it up and request the
        // next attempt.
        (!pod.creating || !self.id.is_empty())
            && self.state.is_none_or(|state| state == sandbox::state(pod.state) as i32)
            && self.matches_labels(pod.id, &pod.config.labels)
    }
}

/// `ContainerFilter` and `ContainerStatsFilter`: id prefixes of the container and its pod, a state, labels.
#[derive(Default)]
pub(crate) struct ContainerFilter {
    id: String,
    sandbox: String,
    state: Option<i32>,
    labels: HashMap<String, String>,
}

impl From<Option<v1::ContainerFilter>> for ContainerFilter {
    fn from(message: Option<v1::ContainerFilter>) -> Self {
        let message = message.unwrap_or_default();
        Self {
            id: message.id,
            sandbox: message.pod_sandbox_id,
            state: message.state.map(|s| s.state),
            labels: message.label_selector,
        }
    }
}

impl From<Option<v1::ContainerStatsFilter>> for ContainerFilter {
    fn from(message: Option<v1::ContainerStatsFilter>) -> Self {
        let message = message.unwrap_or_default();
        Self { id: message.id, sandbox: message.pod_sandbox_id, state: None, labels: message.label_selector }
    }
}

impl ContainerFilter {
    /// Reports whether the filter matches everything.
    pub(crate) fn is_none(&self) -> bool {
        self.id.is_empty() && self.sandbox.is_empty() && self.state.is_none() && self.labels.is_empty()
    }

    /// Matches the ids and the labels, but not the state.
    pub(crate) fn matches_labels(&self, id: &ContainerId, sandbox: &SandboxId, labels: &Labels) -> bool {
        id.as_str().starts_with(&self.id)
            && sandbox.as_str().starts_with(&self.sandbox)
            && has_labels(labels, &self.labels)
    }

    pub(crate) fn matches(&self, container: &ContainerSummary<'_>) -> bool {
        (!container.creating || !self.id.is_empty())
            && self.state.is_none_or(|state| state == container::state(container.state) as i32)
            && self.matches_labels(container.id, container.sandbox, &container.config.labels)
    }
}
