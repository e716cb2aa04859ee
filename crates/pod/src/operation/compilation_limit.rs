//! Limit of concurrent compilations of WebAssembly modules. A module may be hostile and take as long as the time limit
//! permits, so a pod compiles one at a time, and others wait only if as many pods as the node has permits do the same.

use std::{sync::Arc, thread::available_parallelism};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::concurrency::acquire;
use crate::Error;

/// Least number of compilations at a time.
const COMPILATIONS_MIN: u32 = 2;

/// The permits of the node: one for each core.
pub(crate) struct CompilationLimit {
    permits: u32,
    semaphore: Arc<Semaphore>,
}

/// The permit of a pod. Acquired before that of the node: a pod that waits for itself keeps none of the node.
pub(crate) struct PodCompilations(Arc<Semaphore>);

impl Default for CompilationLimit {
    fn default() -> Self {
        let cores =
            available_parallelism().map_or(COMPILATIONS_MIN, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX));
        Self::new(cores.clamp(COMPILATIONS_MIN, 1024))
    }
}

impl CompilationLimit {
    fn new(permits: u32) -> Self {
        Self { permits, semaphore: Arc::new(Semaphore::new(permits as usize)) }
    }

    /// Acquires a permit for a compilation. It must be held until the compiler has ended.
    pub(crate) async fn acquire(&self) -> Result<OwnedSemaphorePermit, Error> {
        acquire(&self.semaphore).await
    }

    /// Acquires all permits; `None` if there is a compilation.
    pub(crate) fn try_acquire_all(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.semaphore).try_acquire_many_owned(self.permits).ok()
    }
}

impl Default for PodCompilations {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl PodCompilations {
    /// Acquires the permit for a compilation.
    pub(crate) async fn acquire(&self) -> Result<OwnedSemaphorePermit, Error> {
        acquire(&self.0).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_pod_compiles_one_module_and_does_not_delay_another_pod() {
        let (limit, hostile, other) =
            (CompilationLimit::new(2), PodCompilations::default(), PodCompilations::default());
        let of_pod = hostile.acquire().await.expect("a permit");
        let compilation = limit.acquire().await.expect("a permit");
        let patience = Duration::from_millis(20);
        assert!(tokio::time::timeout(patience, hostile.acquire()).await.is_err(), "its pod has no more");
        drop((other.acquire().await.expect("another pod"), limit.acquire().await.expect("another compilation")));
        assert!(limit.try_acquire_all().is_none(), "there is a compilation");
        drop((of_pod, compilation));
        assert!(limit.try_acquire_all().is_some());
    }

    #[test]
    fn a_node_compiles_at_least_two_modules_at_a_time() {
        assert!(CompilationLimit::default().permits >= COMPILATIONS_MIN);
    }
}
