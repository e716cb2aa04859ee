//! Per-sandbox locks, which serialize attaching and detaching.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

type SharedMutex = Arc<tokio::sync::Mutex<()>>;

/// One lock per sandbox, created on demand.
#[derive(Debug, Default)]
pub(crate) struct SandboxLocks(Mutex<HashMap<String, SharedMutex>>);

/// A held lock; dropping it releases the lock.
pub(crate) struct SandboxLock<'a> {
    locks: &'a SandboxLocks,
    sandbox: String,
    held: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl SandboxLocks {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, SharedMutex>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires the lock of a sandbox; waiters get it in order.
    pub(crate) async fn acquire(&self, sandbox: &str) -> SandboxLock<'_> {
        let mutex = Arc::clone(self.lock().entry(sandbox.to_owned()).or_default());
        let held = mutex.lock_owned().await;
        SandboxLock { locks: self, sandbox: sandbox.to_owned(), held: Some(held) }
    }

    /// Reports whether the lock of a sandbox is held.
    pub(crate) fn is_locked(&self, sandbox: &str) -> bool {
        self.lock().get(sandbox).is_some_and(|mutex| mutex.try_lock().is_err())
    }
}

impl Drop for SandboxLock<'_> {
    fn drop(&mut self) {
        let mut all = self.locks.lock();
        self.held = None;
        // The map holds one reference, and every waiter another.
        if all.get(&self.sandbox).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            all.remove(&self.sandbox);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_is_for_one_sandbox_and_leaves_nothing() {
        let locks = SandboxLocks::default();
        let first = locks.acquire("a").await;
        let other = locks.acquire("b").await;
        assert!(locks.is_locked("a") && locks.is_locked("b"));
        let second = locks.acquire("a");
        tokio::pin!(second);
        assert!(futures_poll(second.as_mut()).await.is_none());
        drop((first, other));
        drop(second.await);
        assert!(!locks.is_locked("a") && !locks.is_locked("b"));
    }

    async fn futures_poll<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        std::future::poll_fn(|context| match future.as_mut().poll(context) {
            std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }
}
