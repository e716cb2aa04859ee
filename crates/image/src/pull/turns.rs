//! Turns to unpack: as many at once as there is work for, because each takes a core and memory.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{Error, unpack::large_window_is_awaited};

/// Most layers that are unpacked at once, whatever the number of cores: each takes up to 100 MiB.
const TURNS_MAX: usize = 8;

/// Turns, and how many wait for one.
pub(crate) struct Turns {
    permits: Semaphore,
    waiting: AtomicUsize,
}

impl Default for Turns {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        // One more than cores: one may wait for its download.
        Self { permits: Semaphore::new((cores + 1).min(TURNS_MAX)), waiting: AtomicUsize::new(0) }
    }
}

impl Turns {
    /// Waits for a turn.
    pub(crate) async fn take(self: &Arc<Self>) -> Result<SemaphorePermit<'_>, Error> {
        let _waiting = Waiting::new(&self.waiting);
        self.permits.acquire().await.map_err(|_| Error::system("the turns to unpack are closed"))
    }

    /// Whether someone waits whom a slow layer holds up.
    pub(crate) fn are_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || large_window_is_awaited()
    }
}

/// Counts one that waits, also if it is cancelled.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
