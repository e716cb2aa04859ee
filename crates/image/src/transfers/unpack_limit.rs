//! Concurrency limit of unpacking, because each layer takes a core and memory.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{Error, unpack::large_window_is_awaited};

/// Most layers that are unpacked at once, whatever the number of cores: each takes up to 100 MiB.
const UNPACKS_MAX: usize = 8;

/// A semaphore, and the number of callers that wait for it.
pub(crate) struct UnpackLimit {
    permits: Semaphore,
    waiting: AtomicUsize,
}

impl Default for UnpackLimit {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        // One more than the number of cores, because one layer may be waiting for its download.
        Self { permits: Semaphore::new((cores + 1).min(UNPACKS_MAX)), waiting: AtomicUsize::new(0) }
    }
}

impl UnpackLimit {
    /// Waits for a permit.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Result<SemaphorePermit<'_>, Error> {
        let _waiting = WaitingCount::new(&self.waiting);
        self.permits.acquire().await.map_err(|_| Error::system("the semaphore of unpacking is closed"))
    }

    /// Whether a slow layer delays others: some wait for a permit, or for the large zstd window.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || large_window_is_awaited()
    }
}

/// Counts a waiting caller, also if it is cancelled.
struct WaitingCount<'a>(&'a AtomicUsize);

impl<'a> WaitingCount<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for WaitingCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
