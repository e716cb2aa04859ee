//! States of the agents of overlays.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Why the last attempt of an agent failed, by the name of the network; `None` after a success.
#[derive(Debug, Default)]
pub(crate) struct AgentStates(Mutex<HashMap<String, Option<String>>>);

impl AgentStates {
    /// Notes a failure; logs it if it is a new one.
    pub(crate) fn fail(&self, network: &str, reason: &str) {
        let mut states = self.lock();
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
    pub(crate) fn succeed(&self, network: &str) -> bool {
        let mut states = self.lock();
        let previous = states.insert(network.to_owned(), None);
        if previous.as_ref().is_some_and(Option::is_some) {
            tracing::info!(network, "the overlay follows the other nodes again");
        }
        !matches!(previous, Some(None))
    }

    /// Forgets a network.
    pub(crate) fn forget(&self, network: &str) {
        self.lock().remove(network);
    }

    /// Returns why overlays cannot follow their nodes.
    pub(crate) fn failures(&self) -> Vec<String> {
        let states = self.lock();
        let failed = states.iter().filter_map(|(name, state)| Some((name, state.as_ref()?)));
        let mut failures: Vec<String> = failed.map(|(name, reason)| format!("overlay {name}: {reason}")).collect();
        failures.sort();
        failures
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Option<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
