//! Counters of the network interfaces of pods.

use std::collections::HashMap;

use network::Counters;

use super::subjects::Subjects;
use crate::{SharedMode, store::Sandbox};

/// Counters by sandbox. Those of all bridged pods are read with one request on the node; those of CNI pods are read in
/// their network namespaces.
pub(super) struct Interfaces(HashMap<String, Counters>);

impl Interfaces {
    pub(super) fn read(subjects: &Subjects) -> Self {
        let all = subjects.registry.sandboxes();
        let attached: Vec<&str> = all
            .iter()
            .filter(|sandbox| sandbox.is_ready() && sandbox.config().network == SharedMode::Pod)
            .map(|sandbox| sandbox.id().as_str())
            .collect();
        if attached.is_empty() {
            return Self(HashMap::new());
        }
        Self(subjects.node.network.bridged_counters(&attached).unwrap_or_else(|error| {
            tracing::debug!("read the counters of bridged pods: {error}");
            HashMap::new()
        }))
    }

    /// Returns the counters of one pod, its primary interface first.
    pub(super) fn counters(&self, subjects: &Subjects, sandbox: &Sandbox) -> Vec<Counters> {
        if sandbox.config().network == SharedMode::Node {
            // The counters of the node do not belong to a pod.
            return Vec::new();
        }
        if let Some(counters) = self.0.get(sandbox.id().as_str()) {
            return vec![counters.clone()];
        }
        let namespace = subjects.node.pins.get(sandbox.id().as_str()).ok();
        let mut counters = namespace.and_then(|ns| subjects.node.network.counters(&ns).ok()).unwrap_or_default();
        let record = sandbox.record();
        let primary = record.attachment.as_ref().map_or("eth0", |attachment| attachment.interface.as_str());
        counters.sort_by_key(|counters| counters.interface != primary);
        counters
    }
}
