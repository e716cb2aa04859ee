//! Concurrency limits of operations. Work that creates something (mounts, files, cloned processes) needs one of a few
//! permits; work that stops, kills, inspects or lists needs none, so that it never waits for the former.
//!
//! | work | permits |
//! |---|---|
//! | a root file system and its mounts: on a thread that blocks, possibly on the engine's disk | `mounts` |
//! | namespaces and files of a pod, in memory: on a thread that blocks for less than a millisecond | `pods` |
//! | volumes and logs, possibly on a dead file server | those of `node::HostFiles` |
//! | a clone by the monitor, which does one thing at a time | `clones` |
//! | a program that creates a container, and may hang: an OCI runtime, a shim | one of its pod, and one of its handler |
//! | the compilation of a WebAssembly module, which may take minutes | that of its pod, and one of [`super::CompilationLimit`] |
//! | signals, exec in a container, the start of a created container, removals, lists | none |

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Error, ErrorKind};

/// Out of about 500 threads that may block at the same time.
const MOUNTS: usize = 64;
const PODS: usize = 16;
/// A clone takes the monitor less than a millisecond, so a signal waits at most as long as these take.
const CLONES: usize = 4;
/// For each handler. A pod has fewer permits, so that its programs that hang do not take all of them.
const PROGRAMS: usize = 16;
const PROGRAMS_OF_POD: usize = 2;
/// How long a stop or a removal waits for an earlier operation on the same object.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// The semaphores that limit concurrent work.
#[derive(Clone)]
pub(crate) struct ConcurrencyLimits {
    mounts: Arc<Semaphore>,
    pods: Arc<Semaphore>,
    clones: Arc<Semaphore>,
    /// By the name of the handler; handlers do not change.
    programs: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
}

/// The permits of a pod for programs that create its containers.
pub(crate) struct PodPrograms(Arc<Semaphore>);

impl Default for PodPrograms {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PROGRAMS_OF_POD)))
    }
}

impl Default for ConcurrencyLimits {
    fn default() -> Self {
        let limit = |permits| Arc::new(Semaphore::new(permits));
        Self { mounts: limit(MOUNTS), pods: limit(PODS), clones: limit(CLONES), programs: Arc::default() }
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

    /// Acquires the permits for a program of this handler that creates a container of a pod.
    pub(crate) async fn program(&self, handler: &str, pod: &PodPrograms) -> Result<[OwnedSemaphorePermit; 2], Error> {
        let of_handler = {
            let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(programs.entry(handler.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(PROGRAMS))))
        };
        // First that of the pod: a pod that waits for its own programs keeps no permit of the handler.
        let of_pod = acquire(&pod.0).await?;
        Ok([of_pod, acquire(&of_handler).await?])
    }
}

pub(super) async fn acquire(semaphore: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Error> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn programs_that_hang_delay_neither_other_pods_nor_other_handlers() {
        let (limits, hostile, other) = (ConcurrencyLimits::default(), PodPrograms::default(), PodPrograms::default());
        let mut hanging = Vec::new();
        for _ in 0..PROGRAMS_OF_POD {
            hanging.push(limits.program("a", &hostile).await.expect("a permit"));
        }
        let patience = Duration::from_millis(20);
        assert!(tokio::time::timeout(patience, limits.program("a", &hostile)).await.is_err(), "its pod has no more");
        let pods: Vec<PodPrograms> = (0..PROGRAMS - PROGRAMS_OF_POD).map(|_| PodPrograms::default()).collect();
        for pod in &pods {
            hanging.push(limits.program("a", pod).await.expect("a permit"));
        }
        assert!(tokio::time::timeout(patience, limits.program("a", &other)).await.is_err(), "the handler has no more");
        drop(limits.program("b", &other).await.expect("another handler"));
        drop(limits.clone_process().await.expect("a container without a program"));
    }
}
