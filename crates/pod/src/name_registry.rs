//! Reserved names: concurrent requests to create an object of the same name share one operation (single-flight).

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

/// State of a name.
enum Slot {
    Creating(Running),
    Created(String),
}

/// Reserved names of one kind of object.
pub(crate) struct NameRegistry<K>(Arc<Mutex<HashMap<K, Slot>>>);

impl<K> Default for NameRegistry<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// Outcome of a claim.
pub(crate) enum Claim {
    /// The object is being created, by this caller's operation or by an earlier one. The caller must wait for it.
    Creating(Running),
    /// The object exists and has this id.
    Existing(String),
}

impl<K: Hash + Eq + Clone + Send + 'static> NameRegistry<K> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims a name, and starts the operation `make` if the name is free. The operation is a task of its own, so that
    /// it completes even if all its callers are cancelled.
    pub(crate) fn claim<F>(&self, name: &K, make: impl FnOnce() -> F) -> Claim
    where
        F: Future<Output = Result<String, Error>> + Send + 'static,
    {
        let mut slots = self.lock();
        match slots.get(name) {
            Some(Slot::Creating(running)) => return Claim::Creating(running.clone()),
            Some(Slot::Created(id)) => return Claim::Existing(id.clone()),
            None => {}
        }
        let task = tokio::spawn(make().in_current_span());
        let (all, task_name) = (Arc::clone(&self.0), name.clone());
        let running = async move {
            task.await.unwrap_or_else(|panic| {
                // The name is released for a new attempt. The reconciler rolls the object back.
                let mut slots = all.lock().unwrap_or_else(PoisonError::into_inner);
                if matches!(slots.get(&task_name), Some(Slot::Creating(_))) {
                    slots.remove(&task_name);
                }
                Err(Error::internal(format!("a bug: {panic}")))
            })
        };
        let running = running.boxed().shared();
        slots.insert(name.clone(), Slot::Creating(running.clone()));
        Claim::Creating(running)
    }

    /// Assigns a name to an existing object: the last step of its creation, or after a restart.
    pub(crate) fn assign(&self, name: K, id: String) {
        self.lock().insert(name, Slot::Created(id));
    }

    /// Releases a name if it is assigned to this object.
    pub(crate) fn release(&self, name: &K, id: &str) {
        let mut slots = self.lock();
        if matches!(slots.get(name), Some(Slot::Created(owner)) if owner == id) {
            slots.remove(name);
        }
    }

    /// Releases a name whose operation failed.
    pub(crate) fn abandon(&self, name: &K) {
        self.lock().remove(name);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn concurrent_claims_of_a_name_share_one_operation() {
        let names = Arc::new(NameRegistry::<u8>::default());
        let (go, wait) = oneshot::channel::<()>();
        let make = {
            let names = Arc::clone(&names);
            || async move {
                let _ = wait.await;
                names.assign(1, "id".into());
                Ok("id".to_owned())
            }
        };
        let Claim::Creating(first) = names.claim(&1, make) else { panic!("the name is free") };
        let Claim::Creating(second) = names.claim(&1, || async { Err(Error::internal("never run")) }) else {
            panic!("the object is being created")
        };
        // The first caller is cancelled.
        drop(first);
        go.send(()).expect("the operation waits");
        assert_eq!(second.await.expect("created"), "id");
        assert!(matches!(names.claim(&1, || async { Ok(String::new()) }), Claim::Existing(id) if id == "id"));
        names.abandon(&1);
        let Claim::Creating(again) = names.claim(&1, || async { Err(Error::invalid("no")) }) else { panic!("free") };
        assert!(again.await.is_err());
    }

    #[tokio::test]
    async fn a_name_is_released_when_its_operation_panics() {
        let names = NameRegistry::<u8>::default();
        let Claim::Creating(first) = names.claim(&1, || async { panic!("on purpose") }) else { panic!("free") };
        assert!(first.await.expect_err("the panic is returned").message.contains("on purpose"));
        let Claim::Creating(again) = names.claim(&1, || async { Ok("id".to_owned()) }) else { panic!("free again") };
        assert_eq!(again.await.expect("created"), "id");
    }
}
