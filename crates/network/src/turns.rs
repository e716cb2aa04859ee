//! One at a time for each sandbox: whoever attaches or detaches it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

type Waiting = Arc<tokio::sync::Mutex<()>>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<String, Waiting>>);

/// Given back when it is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    sandbox: String,
    held: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for those before.
    pub(crate) async fn take(&self, sandbox: &str) -> Turn<'_> {
        let waiting = Arc::clone(self.lock().entry(sandbox.to_owned()).or_default());
        let held = waiting.lock_owned().await;
        Turn { turns: self, sandbox: sandbox.to_owned(), held: Some(held) }
    }

    /// Whether somebody has it.
    pub(crate) fn is_taken(&self, sandbox: &str) -> bool {
        self.lock().get(sandbox).is_some_and(|waiting| waiting.try_lock().is_err())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut all = self.turns.lock();
        self.held = None;
        // Who waits has a reference; so has the map.
        if all.get(&self.sandbox).is_some_and(|waiting| Arc::strong_count(waiting) == 1) {
            all.remove(&self.sandbox);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_is_for_one_sandbox_and_leaves_nothing() {
        let turns = Turns::default();
        let first = turns.take("a").await;
        let other = turns.take("b").await;
        assert!(turns.is_taken("a") && turns.is_taken("b"));
        let second = turns.take("a");
        tokio::pin!(second);
        assert!(futures_poll(second.as_mut()).await.is_none());
        drop((first, other));
        drop(second.await);
        assert!(!turns.is_taken("a") && !turns.is_taken("b"));
    }

    async fn futures_poll<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        std::future::poll_fn(|context| match future.as_mut().poll(context) {
            std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }
}
