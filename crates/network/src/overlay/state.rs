//! What the agents of overlays report.

use std::{collections::HashMap, sync::Mutex};

use crate::network::{Inner, lock};

/// Why the last attempt of an agent failed, by the name of the network; `None` after a success.
#[derive(Debug, Default)]
pub(crate) struct AgentStates(Mutex<HashMap<String, Option<String>>>);

impl AgentStates {
    /// Notes a failure; logs it if it is a new one.
    pub(super) fn fail(&self, network: &str, reason: &str) {
        let mut states = lock(&self.0);
        let state = states.entry(network.to_owned()).or_default();
        if state.as_deref() != Some(reason) {
            tracing::warn!(
                network,
                reason,
                "the overlay cannot follow the other nodes; its configuration stays as it is"
            );
            *state = Some(reason.to_owned());
        }
    }

    /// Notes a success; returns whether it is the first one, or the first one after a failure.
    fn succeed(&self, network: &str) -> bool {
        let mut states = lock(&self.0);
        let previous = states.insert(network.to_owned(), None);
        if previous.as_ref().is_some_and(Option::is_some) {
            tracing::info!(network, "the overlay follows the other nodes again");
        }
        !matches!(previous, Some(None))
    }

    /// Returns the failures.
    fn failures(&self) -> Vec<String> {
        let states = lock(&self.0);
        let failed = states.iter().filter_map(|(name, state)| Some((name, state.as_ref()?)));
        let mut failures: Vec<String> = failed.map(|(name, reason)| format!("overlay {name}: {reason}")).collect();
        failures.sort();
        failures
    }
}

impl Inner {
    /// Notes the outcome of an attempt of an agent. After the first success the plugins' `STATUS` is not left to the next
    /// reconciliation: pods may wait for it.
    pub(super) async fn note(&self, network: &str, outcome: Result<(), String>) {
        match outcome {
            Err(reason) => self.agent_states.fail(network, &reason),
            Ok(()) if self.agent_states.succeed(network) => self.query_plugins().await,
            Ok(()) => {}
        }
    }

    /// Returns why overlays cannot follow their nodes.
    pub(crate) fn failed_overlays(&self) -> Vec<String> {
        self.agent_states.failures()
    }
}
