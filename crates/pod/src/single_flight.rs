//! Single-flight operations on existing objects: concurrent requests for the same operation share one execution.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tracing::Instrument;

use crate::Error;

type Running = Shared<BoxFuture<'static, Result<(), Error>>>;

/// Operations that are shared by concurrent callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    StopSandbox,
    RemoveSandbox,
    StartContainer,
    RemoveContainer,
}

/// The operations in progress, by kind and object id.
#[derive(Clone, Default)]
pub(crate) struct SingleFlight(Arc<Mutex<HashMap<(Operation, String), Running>>>);

impl SingleFlight {
    fn lock(&self) -> MutexGuard<'_, HashMap<(Operation, String), Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the operation if it is in progress, else starts it. It runs as a task of its own, so that it completes
    /// even if all its callers are cancelled.
    pub(crate) async fn run<F>(&self, operation: Operation, id: &str, make: impl FnOnce() -> F) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let key = (operation, id.to_owned());
        let running = {
            let mut in_progress = self.lock();
            match in_progress.get(&key) {
                Some(running) => running.clone(),
                None => {
                    let (flights, task_key) = (self.clone(), key.clone());
                    let work = make().in_current_span();
                    let task = tokio::spawn(async move {
                        let outcome = work.await;
                        flights.lock().remove(&task_key);
                        outcome
                    });
                    let (flights, task_key) = (self.clone(), key.clone());
                    let running = async move {
                        task.await.unwrap_or_else(|panic| {
                            flights.lock().remove(&task_key);
                            Err(Error::internal(format!("a bug: {panic}")))
                        })
                    };
                    let running = running.boxed().shared();
                    in_progress.insert(key, running.clone());
                    running
                }
            }
        };
        running.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn concurrent_callers_share_one_execution_and_a_later_caller_starts_another() {
        let (flights, runs) = (SingleFlight::default(), Arc::new(AtomicU32::new(0)));
        let (go, wait) = oneshot::channel::<()>();
        let first = {
            let runs = Arc::clone(&runs);
            let (flights, wait) = (flights.clone(), wait);
            tokio::spawn(async move {
                let work = || async move {
                    let _ = wait.await;
                    runs.fetch_add(1, Ordering::Relaxed);
                    Err(Error::invalid("no"))
                };
                flights.run(Operation::StopSandbox, "a", work).await
            })
        };
        while flights.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        let second = flights.run(Operation::StopSandbox, "a", || async { unreachable!("it is in progress") });
        let (second, ()) = tokio::join!(second, async { go.send(()).expect("the task waits") });
        assert_eq!(second.expect_err("shared").message, "no");
        assert!(first.await.expect("task").is_err());
        assert!(flights.lock().is_empty());
        flights.run(Operation::StopSandbox, "a", || async { Ok(()) }).await.expect("another execution");
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }
}
