//! Operations that are joined: who asks for what is already being done gets its result.
//!
//! An operation runs on a task of its own: a caller that hangs up does not leave it half done, and its work is not lost.

use std::{
    collections::HashMap,
    future::Future,
    hash::Hash,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{FutureExt, future::Shared};

use tracing::Instrument;

use crate::{Error, progress::Listeners};

/// The result of a flight, for any number of waiters.
pub(crate) type Landing<V> = Shared<Pin<Box<dyn Future<Output = Result<V, Error>> + Send>>>;

type Running<K, V> = Arc<Mutex<HashMap<K, (Landing<V>, Listeners)>>>;

/// Running operations by what they are for.
pub(crate) struct Flights<K, V>(Running<K, V>);

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K, V> Flights<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Joins the operation for `key`, or starts it. The flag tells whether it was joined.
    pub(crate) fn join<F, M>(&self, key: K, listeners: &Listeners, make: M) -> (Landing<V>, bool)
    where
        F: Future<Output = Result<V, Error>> + Send + 'static,
        M: FnOnce(Listeners) -> F,
    {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((landing, heard)) = running.get(&key) {
            heard.also(listeners);
            return (landing.clone(), true);
        }
        let heard = Listeners::default();
        heard.also(listeners);
        let operation = make(heard.clone()).in_current_span();
        let (all, own) = (self.0.clone(), key.clone());
        let task = tokio::spawn(async move {
            let ended = Ended(all, own);
            let result = operation.await;
            drop(ended);
            result
        });
        let waiting =
            async move { task.await.unwrap_or_else(|cause| Err(Error::system(format!("task ended: {cause}")))) };
        let landing = waiting.boxed().shared();
        running.insert(key, (landing.clone(), heard));
        (landing, false)
    }
}

/// Takes an operation off the list, however it ends.
struct Ended<K: Eq + Hash, V>(Running<K, V>, K);

impl<K: Eq + Hash, V> Drop for Ended<K, V> {
    fn drop(&mut self) {
        let gone = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
        drop(gone);
    }
}
