//! Evictions that plugins request, within a bound for each plugin.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::messages::Eviction;

/// Most evictions of one plugin that are in progress at the same time.
const EVICTIONS_MAX: usize = 256;

/// An eviction that a plugin requested. It counts against the bound of the plugin until it is dropped.
#[derive(Debug)]
pub struct PendingEviction {
    /// Whole id of the container.
    pub container_id: String,
    /// Reason that the plugin states, of any length.
    pub reason: String,
    _permit: OwnedSemaphorePermit,
}

/// The bound of one plugin.
#[derive(Debug)]
pub(crate) struct EvictionLimit(Arc<Semaphore>);

impl Default for EvictionLimit {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(EVICTIONS_MAX)))
    }
}

impl EvictionLimit {
    /// Accepts all evictions of a message, or none of them.
    ///
    /// # Errors
    /// With these, more evictions would be in progress than are allowed.
    pub(crate) fn accept(&self, evictions: Vec<Eviction>) -> Result<Vec<PendingEviction>, String> {
        let accept = |eviction: &Eviction| {
            let permit = Arc::clone(&self.0).try_acquire_owned().ok()?;
            let Eviction { container_id, reason } = eviction.clone();
            Some(PendingEviction { container_id, reason, _permit: permit })
        };
        evictions.iter().map(accept).collect::<Option<Vec<_>>>().ok_or_else(|| {
            format!(
                "{} evictions requested while {} are in progress; at most {EVICTIONS_MAX} are allowed",
                evictions.len(),
                EVICTIONS_MAX - self.0.available_permits()
            )
        })
    }
}
