//! What the pods' network tells of itself in figures.

use telemetry::{Counter, Gauge, Histogram};

use crate::Network;

/// Counted since the network was opened.
#[derive(Debug, Default)]
pub struct Figures {
    /// How long pods took to be attached, the undoing of failures included.
    pub attach_took: Histogram,
    /// Pods that could not be attached.
    pub attach_failed: Counter,
    /// How long pods took to be detached.
    pub detach_took: Histogram,
    /// Pods that could not be detached at the first try, or the next.
    pub detach_failed: Counter,
    /// CNI plugins (programs) that run.
    pub plugins_running: Gauge,
    /// How long they took.
    pub plugin_took: Histogram,
    /// Calls of plugins that failed, those that took too long among them.
    pub plugin_failed: Counter,
}

impl Network {
    /// What happened.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.inner.figures
    }
}
