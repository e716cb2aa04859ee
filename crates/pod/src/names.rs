//! Names that are taken: an operation that makes an object is joined by whoever asks for the same name.

use std::{
    collections::HashMap,
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};

use tracing::Instrument;

use crate::Error;

type Running = Shared<BoxFuture<'static, Result<String, Error>>>;

/// Who has a name.
enum Slot {
    Making(Running),
    Made(String),
}

/// Names of one kind of object.
pub(crate) struct Names<K>(Arc<Mutex<HashMap<K, Slot>>>);

impl<K> Default for Names<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// What became of a claim.
pub(crate) enum Claim {
    /// The object is being made, by this caller's operation or by an earlier one: wait for it.
    Making(Running),
    /// It is there.
    Made(String),
}

impl<K: Hash + Eq + Clone + Send + 'static> Names<K> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the operation where the name is free. It is a task of its own: it comes to its end whoever waits for it.
    pub(crate) fn claim<F>(&self, name: &K, make: impl FnOnce() -> F) -> Claim
    where
        F: Future<Output = Result<String, Error>> + Send + 'static,
    {
        let mut slots = self.lock();
        match slots.get(name) {
            Some(Slot::Making(running)) => return Claim::Making(running.clone()),
            Some(Slot::Made(id)) => return Claim::Made(id.clone()),
            None => {}
        }
        let task = tokio::spawn(make().in_current_span());
        let (all, mine) = (Arc::clone(&self.0), name.clone());
        let running = async move {
            task.await.unwrap_or_else(|panic| {
                // Whoever asks again begins anew; what was made is taken back by the reconciler.
                let mut slots = all.lock().unwrap_or_else(PoisonError::into_inner);
                if matches!(slots.get(&mine), Some(Slot::Making(_))) {
                    slots.remove(&mine);
                }
                Err(Error::internal(format!("a bug: {panic}")))
            })
        };
        let running = running.boxed().shared();
        slots.insert(name.clone(), Slot::Making(running.clone()));
        Claim::Making(running)
    }

    /// The object is there (its operation's last step, or after a restart).
    pub(crate) fn made(&self, name: K, id: String) {
        self.lock().insert(name, Slot::Made(id));
    }

    /// The name is free again, if this object had it.
    pub(crate) fn free_of(&self, name: &K, id: &str) {
        let mut slots = self.lock();
        if matches!(slots.get(name), Some(Slot::Made(of)) if of == id) {
            slots.remove(name);
        }
    }

    /// The name is free again: its operation failed.
    pub(crate) fn free(&self, name: &K) {
        self.lock().remove(name);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn callers_of_one_name_share_one_operation() {
        let names = Arc::new(Names::<u8>::default());
        let (go, wait) = oneshot::channel::<()>();
        let make = {
            let names = Arc::clone(&names);
            || async move {
                let _ = wait.await;
                names.made(1, "id".into());
                Ok("id".to_owned())
            }
        };
        let Claim::Making(first) = names.claim(&1, make) else { panic!("it was free") };
        let Claim::Making(second) = names.claim(&1, || async { Err(Error::internal("never run")) }) else {
            panic!("it is being made")
        };
        // The first caller hangs up.
        drop(first);
        go.send(()).expect("it waits");
        assert_eq!(second.await.expect("made"), "id");
        assert!(matches!(names.claim(&1, || async { Ok(String::new()) }), Claim::Made(id) if id == "id"));
        names.free(&1);
        let Claim::Making(again) = names.claim(&1, || async { Err(Error::invalid("no")) }) else { panic!("free") };
        assert!(again.await.is_err());
    }

    #[tokio::test]
    async fn a_name_is_free_again_after_a_bug() {
        let names = Names::<u8>::default();
        let Claim::Making(first) = names.claim(&1, || async { panic!("on purpose") }) else { panic!("it was free") };
        assert!(first.await.expect_err("it is told").message.contains("on purpose"));
        let Claim::Making(again) = names.claim(&1, || async { Ok("id".to_owned()) }) else { panic!("it is free") };
        assert_eq!(again.await.expect("made"), "id");
    }
}
