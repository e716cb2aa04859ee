//! Counters of pods' interfaces.

use std::collections::HashMap;

use network::Counters;

use crate::{
    engine::Inner,
    sandbox::{Sandbox, SharedMode},
};

/// Counters by sandbox: of all bridged pods by one question on the node; the others, CNI's, are asked in their
/// namespaces.
pub(super) struct Interfaces(HashMap<String, Counters>);

impl Interfaces {
    pub(super) fn look(engine: &Inner) -> Self {
        let all = engine.sandboxes();
        let attached: Vec<&str> = all
            .iter()
            .filter(|sandbox| sandbox.is_ready() && sandbox.config().network == SharedMode::Pod)
            .map(|sandbox| sandbox.id())
            .collect();
        if attached.is_empty() {
            return Self(HashMap::new());
        }
        Self(engine.network.bridged_counters(&attached).unwrap_or_else(|error| {
            tracing::debug!("pods' counters: {error}");
            HashMap::new()
        }))
    }

    /// Of one pod, its primary interface first.
    pub(super) fn of(&self, engine: &Inner, sandbox: &Sandbox) -> Vec<Counters> {
        if sandbox.config().network == SharedMode::Node {
            // The node's figures are no pod's.
            return Vec::new();
        }
        if let Some(counters) = self.0.get(sandbox.id()) {
            return vec![counters.clone()];
        }
        let namespace = engine.pins.get(sandbox.id()).ok();
        let mut found = namespace.and_then(|ns| engine.network.counters(&ns).ok()).unwrap_or_default();
        let record = sandbox.record();
        let primary = record.attachment.as_ref().map_or("eth0", |attachment| attachment.interface.as_str());
        found.sort_by_key(|counters| counters.interface != primary);
        found
    }
}
