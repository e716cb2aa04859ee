//! Operations on objects that are there: who asks for one that runs already, waits for it and gets its outcome.

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

/// What can be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    StopSandbox,
    RemoveSandbox,
    StartContainer,
    RemoveContainer,
}

/// Operations that run, by what they are and whose id.
#[derive(Clone, Default)]
pub(crate) struct Joined(Arc<Mutex<HashMap<(Operation, String), Running>>>);

impl Joined {
    fn lock(&self) -> MutexGuard<'_, HashMap<(Operation, String), Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins it, or begins it as a task of its own: it comes to its end whoever waits for it.
    pub(crate) async fn join<F>(&self, what: Operation, id: &str, make: impl FnOnce() -> F) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let key = (what, id.to_owned());
        let running = {
            let mut all = self.lock();
            match all.get(&key) {
                Some(running) => running.clone(),
                None => {
                    let (joined, mine) = (self.clone(), key.clone());
                    let work = make().in_current_span();
                    let task = tokio::spawn(async move {
                        let outcome = work.await;
                        joined.lock().remove(&mine);
                        outcome
                    });
                    let (joined, mine) = (self.clone(), key.clone());
                    let running = async move {
                        task.await.unwrap_or_else(|panic| {
                            joined.lock().remove(&mine);
                            Err(Error::internal(format!("a bug: {panic}")))
                        })
                    };
                    let running = running.boxed().shared();
                    all.insert(key, running.clone());
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
    async fn callers_of_one_operation_share_it_and_the_next_begins_anew() {
        let (joined, ran) = (Joined::default(), Arc::new(AtomicU32::new(0)));
        let (go, wait) = oneshot::channel::<()>();
        let first = {
            let ran = Arc::clone(&ran);
            let (joined, wait) = (joined.clone(), wait);
            tokio::spawn(async move {
                let work = || async move {
                    let _ = wait.await;
                    ran.fetch_add(1, Ordering::Relaxed);
                    Err(Error::invalid("no"))
                };
                joined.join(Operation::StopSandbox, "a", work).await
            })
        };
        while joined.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        let second = joined.join(Operation::StopSandbox, "a", || async { unreachable!("it runs already") });
        let (second, ()) = tokio::join!(second, async { go.send(()).expect("it waits") });
        assert_eq!(second.expect_err("shared").message, "no");
        assert!(first.await.expect("task").is_err());
        assert!(joined.lock().is_empty());
        joined.join(Operation::StopSandbox, "a", || async { Ok(()) }).await.expect("anew");
        assert_eq!(ran.load(Ordering::Relaxed), 1);
    }
}
