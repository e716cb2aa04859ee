//! Single-flight: callers that request the same operation at the same time share one execution and its result.
//!
//! An operation runs on its own task, so that a caller that hangs up does not abort it. When it has had no caller for
//! the grace period it is cancelled, and returns at the next point where it waits for the network. None of its tasks
//! and threads is running when it has returned.

use std::{
    collections::HashMap,
    future::Future,
    hash::Hash,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{FutureExt, future::Shared};
use tokio::sync::watch;
use tracing::Instrument;

use crate::{Error, progress::Listeners};

/// The result of an operation, shared by any number of tasks. Holding it does not keep the operation running.
pub(crate) type PendingResult<V> = Shared<Pin<Box<dyn Future<Output = Result<V, Error>> + Send>>>;

/// A caller that waits for an operation. The operation is cancelled after the last one was dropped.
pub(crate) struct Waiter<V> {
    pending: PendingResult<V>,
    /// `None` once released.
    waiters: Option<Arc<watch::Sender<usize>>>,
}

/// Reports to an operation that it was cancelled because no caller waits for it any longer.
#[derive(Clone)]
pub(crate) struct CancelToken(watch::Receiver<bool>);

struct Running<V> {
    pending: PendingResult<V>,
    waiters: Arc<watch::Sender<usize>>,
    listeners: Listeners,
}

type AllRunning<K, V> = Arc<Mutex<HashMap<K, Running<V>>>>;

/// The running operations by key.
pub(crate) struct SingleFlight<K, V>(AllRunning<K, V>);

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

fn lock<K, V>(running: &AllRunning<K, V>) -> MutexGuard<'_, HashMap<K, Running<V>>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K, V> SingleFlight<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Attaches to the running operation for `key`, or starts it. The flag is set if it was running. The operation is
    /// cancelled when it has had no caller for `grace`.
    pub(crate) fn attach_or_start<F, M>(
        &self,
        key: K,
        listeners: &Listeners,
        grace: Duration,
        make: M,
    ) -> (Waiter<V>, bool)
    where
        F: Future<Output = Result<V, Error>> + Send + 'static,
        M: FnOnce(Listeners, CancelToken) -> F,
    {
        let mut running = lock(&self.0);
        if let Some(known) = running.get(&key) {
            known.listeners.forward_to(listeners);
            known.waiters.send_modify(|count| *count += 1);
            return (Waiter { pending: known.pending.clone(), waiters: Some(known.waiters.clone()) }, true);
        }
        let shared_listeners = Listeners::default();
        shared_listeners.forward_to(listeners);
        let (cancel, cancelled) = watch::channel(false);
        let waiters = Arc::new(watch::Sender::new(1));
        let operation = make(shared_listeners.clone(), CancelToken(cancelled)).in_current_span();
        let entry = Entry { all: self.0.clone(), key: key.clone(), waiters: waiters.clone() };
        let task = tokio::spawn(entry.drive(operation, grace, cancel));
        let waiting =
            async move { task.await.unwrap_or_else(|cause| Err(Error::system(format!("task ended: {cause}")))) };
        let pending = waiting.boxed().shared();
        running
            .insert(key, Running { pending: pending.clone(), waiters: waiters.clone(), listeners: shared_listeners });
        (Waiter { pending, waiters: Some(waiters) }, false)
    }
}

/// The entry of a running operation, which is removed when this is dropped.
struct Entry<K: Clone + Eq + Hash, V> {
    all: AllRunning<K, V>,
    key: K,
    waiters: Arc<watch::Sender<usize>>,
}

impl<K: Clone + Eq + Hash, V> Entry<K, V> {
    async fn drive<F>(self, operation: F, grace: Duration, cancel: watch::Sender<bool>) -> Result<V, Error>
    where
        F: Future<Output = Result<V, Error>>,
    {
        let mut operation = pin!(operation);
        let mut count = self.waiters.subscribe();
        loop {
            tokio::select! {
                biased;
                result = &mut operation => return result,
                _ = count.wait_for(|count| *count == 0) => {}
            }
            tokio::select! {
                biased;
                result = &mut operation => return result,
                _ = count.wait_for(|count| *count > 0) => continue,
                () = tokio::time::sleep(grace) => {}
            }
            if self.remove_if(|waiters| waiters == 0) {
                cancel.send_replace(true);
                return operation.await;
            }
        }
    }

    /// Removes the entry if `condition` holds for the number of callers, and returns whether it did. No caller can
    /// attach to the operation from then on.
    fn remove_if(&self, condition: impl FnOnce(usize) -> bool) -> bool {
        let mut all = lock(&self.all);
        let is_listed = all.get(&self.key).is_some_and(|running| Arc::ptr_eq(&running.waiters, &self.waiters));
        let matches = is_listed && condition(*self.waiters.borrow());
        let removed = if matches { all.remove(&self.key) } else { None };
        drop(all);
        removed.is_some()
    }
}

impl<K: Clone + Eq + Hash, V> Drop for Entry<K, V> {
    fn drop(&mut self) {
        self.remove_if(|_| true);
    }
}

impl<V: Clone> Waiter<V> {
    /// Waits for the result.
    pub(crate) async fn wait(&self) -> Result<V, Error> {
        self.pending.clone().await
    }

    /// Stops waiting. Returns the pending result if no other caller keeps the operation running.
    pub(crate) fn release(mut self) -> Option<PendingResult<V>> {
        let last = self.leave();
        last.then(|| self.pending.clone())
    }
}

impl<V> Waiter<V> {
    /// Removes this caller from the count. Returns whether it was the last one.
    fn leave(&mut self) -> bool {
        let mut last = false;
        if let Some(waiters) = self.waiters.take() {
            waiters.send_modify(|count| {
                *count -= 1;
                last = *count == 0;
            });
        }
        last
    }
}

impl<V> Clone for Waiter<V> {
    fn clone(&self) -> Self {
        if let Some(waiters) = &self.waiters {
            waiters.send_modify(|count| *count += 1);
        }
        Self { pending: self.pending.clone(), waiters: self.waiters.clone() }
    }
}

impl<V> Drop for Waiter<V> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl CancelToken {
    /// Returns a token for work that is never cancelled.
    pub(crate) fn never() -> Self {
        Self(watch::channel(false).1)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns an error if the operation was cancelled.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unavailable`]: the operation was cancelled.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_cancelled() { Err(cancelled()) } else { Ok(()) }
    }

    /// Returns a token for work that is cancelled already.
    #[cfg(test)]
    pub(crate) fn already_cancelled() -> Self {
        Self(watch::channel(true).1)
    }

    async fn cancelled(&self) {
        let mut cancelled = self.0.clone();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits for `waiting`, and drops it if the operation is cancelled.
    ///
    /// # Errors
    /// The error of `waiting`, or that the operation was cancelled.
    pub(crate) async fn guard<T>(&self, waiting: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::select! {
            biased;
            result = waiting => result,
            () = self.cancelled() => Err(cancelled()),
        }
    }
}

fn cancelled() -> Error {
    Error::unavailable("cancelled: no caller waits for it any longer")
}
