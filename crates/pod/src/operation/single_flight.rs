//! Single-flight operations: concurrent requests under one key share one execution.

use std::{
    collections::HashMap,
    future::Future,
    hash::Hash,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use tracing::Instrument;

use super::completion::{Completion, Panicked};
use crate::Error;

type Work<T> = BoxFuture<'static, Result<T, Error>>;
/// An operation that its callers own: at the end of the runtime it is dropped with them.
type Flight<T> = WeakShared<Work<T>>;

/// The operations in progress, by key. Clones share them.
pub(crate) struct SingleFlight<K, T>(Arc<Mutex<HashMap<K, Flight<T>>>>);

impl<K, T> Default for SingleFlight<K, T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K, T> Clone for SingleFlight<K, T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Hash + Eq + Clone + Send + 'static, T: Clone + Send + Sync + 'static> SingleFlight<K, T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Flight<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the operation of this key if it is in progress, else runs it. It completes even if all its callers are
    /// cancelled ([`Completion`]).
    pub(crate) async fn run<F>(&self, key: K, make: impl FnOnce() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let flight = {
            let mut flights = self.lock();
            match flights.get(&key).and_then(WeakShared::upgrade) {
                Some(flight) => flight,
                None => {
                    let flight = self.flight(key.clone(), make());
                    flights.extend(flight.downgrade().map(|flight| (key, flight)));
                    flight
                }
            }
        };
        // Also a caller that joins: if it was woken last and is cancelled, nothing else would poll the operation.
        Completion::new(flight).await?
    }

    /// Returns the operation, which is not in progress any longer before its outcome is known.
    fn flight(&self, key: K, work: impl Future<Output = Result<T, Error>> + Send + 'static) -> Shared<Work<T>> {
        let flights = self.clone();
        let work = work.in_current_span();
        let flight = async move {
            let outcome = AssertUnwindSafe(work).catch_unwind().await;
            flights.lock().remove(&key);
            outcome.unwrap_or_else(|panic| Err(Panicked::from(panic).into()))
        };
        flight.boxed().shared()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn concurrent_callers_share_one_execution_and_a_later_caller_starts_another() {
        let (flights, runs) = (SingleFlight::<u8, ()>::default(), Arc::new(AtomicU32::new(0)));
        let (go, wait) = oneshot::channel::<()>();
        let first = {
            let (flights, runs) = (flights.clone(), Arc::clone(&runs));
            tokio::spawn(async move {
                let work = || async move {
                    let _ = wait.await;
                    runs.fetch_add(1, Ordering::Relaxed);
                    Err(Error::invalid("no"))
                };
                flights.run(1, work).await
            })
        };
        while flights.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        let second = flights.run(1, || async { unreachable!("it is in progress") });
        let (second, ()) = tokio::join!(second, async { go.send(()).expect("the operation waits") });
        assert_eq!(second.expect_err("shared").message, "no");
        assert!(first.await.expect("task").is_err());
        assert!(flights.lock().is_empty());
        flights.run(1, || async { Ok(()) }).await.expect("another execution");
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn an_operation_outlives_the_caller_that_began_it() {
        let flights = SingleFlight::<u8, u8>::default();
        let (go, wait) = oneshot::channel::<()>();
        let mut first = Box::pin(flights.run(1, || async move {
            let _ = wait.await;
            Ok(7)
        }));
        assert!((&mut first).now_or_never().is_none());
        let mut second = Box::pin(flights.run(1, || async { unreachable!("it is in progress") }));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        go.send(()).expect("the operation waits");
        assert_eq!(second.await.expect("shared"), 7);
    }

    #[tokio::test]
    async fn a_key_is_free_again_after_a_panic() {
        let flights = SingleFlight::<u8, u8>::default();
        let failure = flights.run(1, || async { panic!("on purpose") }).await.expect_err("the panic is returned");
        assert!(failure.message.contains("on purpose"));
        assert_eq!(flights.run(1, || async { Ok(7) }).await.expect("another execution"), 7);
    }
}
