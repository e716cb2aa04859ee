//! Keeps `GC` apart from `ADD` and `DEL`, and remembers what it has collected.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{attachment_key::AttachmentKey, cni::Chain};

/// How long a network is left alone after its `GC` failed.
const PAUSE: Duration = Duration::from_secs(600);

/// Keeps `GC` apart from `ADD` and `DEL`.
#[derive(Debug, Default)]
pub(crate) struct Activity(RwLock<()>);

impl Activity {
    /// Waits for a `GC` in progress and prevents the next one until the guard is dropped. Returns `None` for networks
    /// whose garbage is not collected.
    pub(crate) async fn enter(&self, chain: &Chain) -> Option<RwLockReadGuard<'_, ()>> {
        if chain.is_collected() { Some(self.0.read().await) } else { None }
    }

    /// Returns `None` if an `ADD` or `DEL` is in progress.
    pub(crate) fn exclude(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.0.try_write().ok()
    }
}

/// Outcome of the last `GC` of each network.
#[derive(Debug, Default)]
pub(crate) struct Collected(Mutex<HashMap<String, Outcome>>);

#[derive(Debug)]
enum Outcome {
    /// It succeeded with these attachments.
    Succeeded(Vec<AttachmentKey>),
    Failed(Instant),
}

impl Collected {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Outcome>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether the network may have garbage that the last `GC` did not see, or could not remove.
    pub(crate) fn is_due(&self, network: &str, attachments: &[AttachmentKey]) -> bool {
        match self.lock().get(network) {
            None => true,
            Some(Outcome::Succeeded(before)) => before != attachments,
            Some(Outcome::Failed(at)) => at.elapsed() >= PAUSE,
        }
    }

    /// Notes that it succeeded with these attachments, or that it failed.
    pub(crate) fn note(&self, network: &str, attachments: Option<Vec<AttachmentKey>>) {
        let outcome = attachments.map_or_else(|| Outcome::Failed(Instant::now()), Outcome::Succeeded);
        self.lock().insert(network.to_owned(), outcome);
    }
}
