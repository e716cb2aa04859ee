//! Attachments that are undone in the background, because their network needs no program ([`Network::detach`](crate::Network::detach)).
//!
//! ```text
//! detach: records marked as leaving, names and ports of the built-in network released → reported as done
//! job:    DEL of the plugins in reverse → link, addresses, ports → record deleted
//! ```
//! Deleting a link takes the kernel 10 to 30 ms, and so does closing a socket for nftables. Until a job has ended, the
//! pod's addresses and ports are reserved, and the ledger has its records as leaving: the reconciler continues the job of a
//! daemon that was killed. The job has the namespace open, whose path is removed in the meantime.
//!
//! An `ADD` that fails while there are jobs is repeated when they have ended: the reason may be what they remove.

use std::{
    collections::BTreeSet,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::attachment_key::AttachmentKey;

/// How many pods may wait for their job or be in one. Each has a descriptor open. Others are detached at once.
const PODS_MAX: usize = 64;
/// How many jobs run at the same time. The kernel deletes one link at a time; the other job prepares.
const AT_ONCE: usize = 2;

/// The attachments that are being undone in the background.
#[derive(Debug)]
pub(crate) struct Deferred {
    pods: Arc<Semaphore>,
    running: Semaphore,
    keys: Arc<Keys>,
}

#[derive(Debug, Default)]
struct Keys {
    pending: Mutex<BTreeSet<AttachmentKey>>,
    changed: Condvar,
}

impl Keys {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<AttachmentKey>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Deferred {
    fn default() -> Self {
        let (pods, running) = (Arc::new(Semaphore::new(PODS_MAX)), Semaphore::new(AT_ONCE));
        Self { pods, running, keys: Arc::default() }
    }
}

impl Deferred {
    /// Returns a place in the queue for a pod; `None` if too many pods are waiting.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.pods).try_acquire_owned().ok()
    }

    /// Notes that attachments are being undone in the background until the returned value is dropped.
    pub(crate) fn begin(&self, keys: &[AttachmentKey]) -> Pending {
        self.keys.lock().extend(keys.iter().cloned());
        Pending { all: Arc::clone(&self.keys), keys: keys.to_vec() }
    }

    /// Waits for the turn of a job. The queue is never closed.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.running.acquire().await.ok()
    }

    /// Reports whether an attachment is being undone in the background.
    pub(crate) fn contains(&self, key: &AttachmentKey) -> bool {
        self.keys.lock().contains(key)
    }

    /// Reports whether any attachment is being undone in the background.
    pub(crate) fn is_busy(&self) -> bool {
        !self.keys.lock().is_empty()
    }

    /// Returns a closure that blocks until no attachment is being undone in the background.
    pub(crate) fn settle(&self) -> impl FnOnce() + Send + 'static {
        let keys = Arc::clone(&self.keys);
        move || {
            let mut pending = keys.lock();
            while !pending.is_empty() {
                pending = keys.changed.wait(pending).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Attachments of one job. They are not pending any longer when it is dropped, also if the job panics or the runtime ends.
pub(crate) struct Pending {
    all: Arc<Keys>,
    keys: Vec<AttachmentKey>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut pending = self.all.lock();
        for key in &self.keys {
            pending.remove(key);
        }
        drop(pending);
        self.all.changed.notify_all();
    }
}
