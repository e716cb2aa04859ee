use std::collections::{BTreeMap, HashMap};

use cri_proto::v1;
use pod::{ContainerGlance, SandboxGlance};

use super::{container, sandbox};

type Labels = BTreeMap<String, String>;

/// Whether all of `wanted` are there. An empty filter fits everything.
fn has_labels(labels: &Labels, wanted: &HashMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// `PodSandboxFilter`: an id prefix, a state, labels.
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
    /// Whether it lets everything through.
    pub(crate) fn is_none(&self) -> bool {
        self.id.is_empty() && self.state.is_none() && self.labels.is_empty()
    }

    /// By id and labels alone.
    pub(crate) fn names(&self, id: &str, labels: &Labels) -> bool {
        id.starts_with(&self.id) && has_labels(labels, &self.labels)
    }

    pub(crate) fn fits(&self, pod: &SandboxGlance<'_>) -> bool {
        // One that is only just being made has no id that anybody could know: its maker, who asks again, joins. Shown
        // as not ready, it would make a kubelet give it up and ask for the next attempt.
        (!pod.making || !self.id.is_empty())
            && self.state.is_none_or(|state| state == sandbox::state(pod.state) as i32)
            && self.names(pod.id, &pod.config.labels)
    }
}

/// `ContainerFilter` and `ContainerStatsFilter`: prefixes of the ids of container and pod, a state, labels.
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
    /// Whether it lets everything through.
    pub(crate) fn is_none(&self) -> bool {
        self.id.is_empty() && self.sandbox.is_empty() && self.state.is_none() && self.labels.is_empty()
    }

    /// By the ids and labels alone.
    pub(crate) fn names(&self, id: &str, sandbox: &str, labels: &Labels) -> bool {
        id.starts_with(&self.id) && sandbox.starts_with(&self.sandbox) && has_labels(labels, &self.labels)
    }

    pub(crate) fn fits(&self, container: &ContainerGlance<'_>) -> bool {
        (!container.making || !self.id.is_empty())
            && self.state.is_none_or(|state| state == container::state(container.state) as i32)
            && self.names(container.id, container.sandbox, &container.config.labels)
    }
}
