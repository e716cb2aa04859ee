//! Single-flight: a caller that requests what is already being done gets the result of that.
//!
//! An operation runs on a task of its own: a caller that hangs up does not leave it half done. When no caller has
//! waited for the grace period it is cancelled. It ends by itself then, where it waits for the network: nothing of it
//! still runs when it has ended, also no thread.

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

/// The result of an operation, for any number of tasks. Holding it keeps nothing running.
pub(crate) type Ending<V> = Shared<Pin<Box<dyn Future<Output = Result<V, Error>> + Send>>>;

/// A caller's interest in an operation, which is cancelled after the last of them was dropped.
pub(crate) struct Landing<V> {
    ending: Ending<V>,
    /// `None` once released.
    waiters: Option<Arc<watch::Sender<usize>>>,
}

/// Reports that no caller waits for an operation any longer.
#[derive(Clone)]
pub(crate) struct Cancel(watch::Receiver<bool>);

struct Running<V> {
    ending: Ending<V>,
    waiters: Arc<watch::Sender<usize>>,
    listeners: Listeners,
}

type AllRunning<K, V> = Arc<Mutex<HashMap<K, Running<V>>>>;

/// Running operations by what they are for.
pub(crate) struct Flights<K, V>(AllRunning<K, V>);

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

fn lock<K, V>(running: &AllRunning<K, V>) -> MutexGuard<'_, HashMap<K, Running<V>>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K, V> Flights<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Joins the operation for `key`, or starts it; the flag is set if it was joined. Without a caller for `grace` it
    /// is cancelled.
    pub(crate) fn join<F, M>(&self, key: K, listeners: &Listeners, grace: Duration, make: M) -> (Landing<V>, bool)
    where
        F: Future<Output = Result<V, Error>> + Send + 'static,
        M: FnOnce(Listeners, Cancel) -> F,
    {
        let mut running = lock(&self.0);
        if let Some(known) = running.get(&key) {
            known.listeners.also(listeners);
            known.waiters.send_modify(|count| *count += 1);
            return (Landing { ending: known.ending.clone(), waiters: Some(known.waiters.clone()) }, true);
        }
        let heard = Listeners::default();
        heard.also(listeners);
        let (cancel, cancelled) = watch::channel(false);
        let waiters = Arc::new(watch::Sender::new(1));
        let operation = make(heard.clone(), Cancel(cancelled)).in_current_span();
        let entry = Entry { all: self.0.clone(), key: key.clone(), waiters: waiters.clone() };
        let task = tokio::spawn(entry.drive(operation, grace, cancel));
        let waiting =
            async move { task.await.unwrap_or_else(|cause| Err(Error::system(format!("task ended: {cause}")))) };
        let ending = waiting.boxed().shared();
        running.insert(key, Running { ending: ending.clone(), waiters: waiters.clone(), listeners: heard });
        (Landing { ending, waiters: Some(waiters) }, false)
    }
}

/// The place of one operation in the list; removed from it when dropped.
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

    /// Removes this operation from the list if the number of its callers is right; nobody joins it from then on.
    fn remove_if(&self, right: impl FnOnce(usize) -> bool) -> bool {
        let mut all = lock(&self.all);
        let own = all.get(&self.key).is_some_and(|running| Arc::ptr_eq(&running.waiters, &self.waiters));
        let right = own && right(*self.waiters.borrow());
        let removed = if right { all.remove(&self.key) } else { None };
        drop(all);
        removed.is_some()
    }
}

impl<K: Clone + Eq + Hash, V> Drop for Entry<K, V> {
    fn drop(&mut self) {
        self.remove_if(|_| true);
    }
}

impl<V: Clone> Landing<V> {
    /// Waits for the result.
    pub(crate) async fn wait(&self) -> Result<V, Error> {
        self.ending.clone().await
    }

    /// Gives up the interest; returns the operation's end if no other caller keeps it running.
    pub(crate) fn release(mut self) -> Option<Ending<V>> {
        let last = self.leave();
        last.then(|| self.ending.clone())
    }
}

impl<V> Landing<V> {
    /// Counts this caller out; returns whether it was the last.
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

impl<V> Clone for Landing<V> {
    fn clone(&self) -> Self {
        if let Some(waiters) = &self.waiters {
            waiters.send_modify(|count| *count += 1);
        }
        Self { ending: self.ending.clone(), waiters: self.waiters.clone() }
    }
}

impl<V> Drop for Landing<V> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Cancel {
    /// For work that is not cancelled.
    pub(crate) fn never() -> Self {
        Self(watch::channel(false).1)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns the error of an operation that was cancelled, if it was.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unavailable`]: it was cancelled.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_cancelled() { Err(cancelled()) } else { Ok(()) }
    }

    /// For work that was cancelled before it began.
    #[cfg(test)]
    pub(crate) fn at_once() -> Self {
        Self(watch::channel(true).1)
    }

    async fn cancelled(&self) {
        let mut cancelled = self.0.clone();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits for something that may be dropped half done.
    ///
    /// # Errors
    /// Its own, or that the operation was cancelled.
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
