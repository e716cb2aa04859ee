//! Concurrency limits of operations. Work that creates something (mounts, files, cloned processes) needs one of a few
//! permits; work that stops, kills, inspects or lists needs none, so that it never waits for the former.
//!
//! | work | permits |
//! |---|---|
//! | a root file system and its mounts: on a thread that blocks, possibly on the engine's disk | `mounts` |
//! | namespaces and files of a pod, in memory: on a thread that blocks for less than a millisecond | `pods` |
//! | volumes and logs, possibly on a dead file server | those of `node::HostFiles` |
//! | a clone by the monitor, which does one thing at a time | `clones` |
//! | signals, exec in a container, the start of a created container, removals, lists | none |

use std::{sync::Arc, time::Duration};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Error, ErrorKind};

/// Out of about 500 threads that may block at the same time.
const MOUNTS: usize = 64;
const PODS: usize = 16;
/// A clone takes the monitor less than a millisecond, so a signal waits at most as long as these take.
const CLONES: usize = 4;
/// How long a stop or a removal waits for an earlier operation on the same object.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// The semaphores that limit concurrent work.
#[derive(Clone)]
pub(crate) struct ConcurrencyLimits {
    mounts: Arc<Semaphore>,
    pods: Arc<Semaphore>,
    clones: Arc<Semaphore>,
}

impl Default for ConcurrencyLimits {
    fn default() -> Self {
        let limit = |permits| Arc::new(Semaphore::new(permits));
        Self { mounts: limit(MOUNTS), pods: limit(PODS), clones: limit(CLONES) }
    }
}

impl ConcurrencyLimits {
    /// Acquires a permit for work that mounts. The permit must be held by the thread that works, not by its caller,
    /// which may give up.
    pub(crate) async fn mount(&self) -> Result<OwnedSemaphorePermit, Error> {
        acquire(&self.mounts).await
    }

    /// Acquires a permit for creating the resources that the containers of a pod share.
    pub(crate) async fn pod(&self) -> Result<OwnedSemaphorePermit, Error> {
        acquire(&self.pods).await
    }

    /// Acquires a permit for a request that makes the monitor clone a process.
    pub(crate) async fn clone_process(&self) -> Result<OwnedSemaphorePermit, Error> {
        acquire(&self.clones).await
    }
}

async fn acquire(semaphore: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Error> {
    // The semaphores are never closed.
    Arc::clone(semaphore).acquire_owned().await.map_err(|_| Error::unavailable("the daemon is shutting down"))
}

/// Waits for a lock for at most [`LOCK_TIMEOUT`]: its holder may hang in the kernel. `stage` describes what the holder
/// is doing.
pub(crate) async fn with_timeout<T>(lock: impl Future<Output = T>, stage: impl FnOnce() -> String) -> Result<T, Error> {
    tokio::time::timeout(LOCK_TIMEOUT, lock).await.map_err(|_| {
        let message = format!(
            "an earlier operation is still running after {} s: {}; it continues, try again later",
            LOCK_TIMEOUT.as_secs(),
            stage()
        );
        Error::new(ErrorKind::DeadlineExceeded, message)
    })
}
