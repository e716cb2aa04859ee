//! Outcomes of the plugins' `STATUS` (CNI 1.1.0).

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::{Map, Value};

use crate::{
    Error,
    cni::{Chain, Plugin, configuration},
};

/// Plugins whose last `STATUS` failed.
#[derive(Debug, Default)]
pub(crate) struct PluginStatus(Mutex<HashMap<String, Failure>>);

#[derive(Debug)]
struct Failure {
    /// The configuration that the plugin was called with: the failure says nothing about another one.
    config: Map<String, Value>,
    reason: String,
}

impl PluginStatus {
    /// Notes the outcome of a call.
    pub(crate) fn note(&self, chain: &Chain, plugin: &Plugin, outcome: Result<(), Error>) {
        let mut failures = self.failures();
        let reason = match outcome {
            Ok(()) => return drop(failures.remove(&plugin.kind)),
            Err(Error::Plugin { reason, .. }) => reason,
            Err(Error::PluginMissing { directories, .. }) => format!("not found in {directories}; install it there"),
            Err(e) => e.to_string(),
        };
        failures.insert(plugin.kind.clone(), Failure { config: configuration(chain, plugin), reason });
    }

    /// Forgets all failures: the network has no `STATUS`.
    pub(crate) fn clear(&self) {
        self.failures().clear();
    }

    /// Returns the failure of a plugin with its present configuration.
    pub(crate) fn failure(&self, chain: &Chain, plugin: &Plugin) -> Option<Error> {
        let failures = self.failures();
        let failure = failures.get(&plugin.kind).filter(|failure| failure.config == configuration(chain, plugin))?;
        Some(Error::plugin(&plugin.kind, "STATUS", failure.reason.clone()))
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<String, Failure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
