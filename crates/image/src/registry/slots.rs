//! Concurrency limits of downloads: one for the node, one for each registry, and one slot for each registry that no
//! other registry can take.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Registries from which layers are downloaded at the same time.
const REGISTRIES_MAX: usize = 32;
/// Downloads from one registry at the same time, including the guaranteed one.
const PER_REGISTRY: usize = 4;
/// Downloads of the node at the same time, in addition to one for each registry.
const SHARED: usize = 12;

/// Download slots by registry (`host:port`).
pub(crate) struct Slots {
    registries: Mutex<HashMap<String, Weak<Registry>>>,
    guaranteed: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

struct Registry {
    guaranteed: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

/// A permit to download, until it is dropped.
pub(crate) struct Slot {
    _permits: (OwnedSemaphorePermit, OwnedSemaphorePermit),
    _registry: Arc<Registry>,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            registries: Mutex::default(),
            guaranteed: Arc::new(Semaphore::new(REGISTRIES_MAX)),
            shared: Arc::new(Semaphore::new(SHARED)),
        }
    }
}

impl Slots {
    /// Waits for a slot. Requests for the same registry are served in order.
    pub(crate) async fn acquire(&self, authority: &str) -> Slot {
        let registry = self.registry(authority);
        let guaranteed = both(&registry.guaranteed, &self.guaranteed);
        let shared = both(&registry.shared, &self.shared);
        let permits = tokio::select! {
            biased;
            permits = guaranteed => permits,
            permits = shared => permits,
        };
        Slot { _permits: permits, _registry: registry }
    }

    fn registry(&self, authority: &str) -> Arc<Registry> {
        let mut all = self.registries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(authority).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, registry| registry.strong_count() > 0);
        let registry = Arc::new(Registry {
            guaranteed: Arc::new(Semaphore::new(1)),
            shared: Arc::new(Semaphore::new(PER_REGISTRY - 1)),
        });
        all.insert(authority.to_owned(), Arc::downgrade(&registry));
        registry
    }
}

async fn both(registry: &Arc<Semaphore>, node: &Arc<Semaphore>) -> (OwnedSemaphorePermit, OwnedSemaphorePermit) {
    let registry = registry.clone().acquire_owned().await.expect("the semaphore is never closed");
    let node = node.clone().acquire_owned().await.expect("the semaphore is never closed");
    (registry, node)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::{PER_REGISTRY, REGISTRIES_MAX, SHARED, Slots};

    #[test]
    fn one_registry_leaves_room_for_the_others() {
        let slots = Slots::default();
        let take = |name: &str| slots.acquire(name).now_or_never();
        let slow: Vec<_> = (0..PER_REGISTRY).map(|_| take("slow").expect("a slot")).collect();
        assert!(take("slow").is_none(), "the limit of one registry");
        // As many slow registries as are needed to take all shared slots.
        let names: Vec<String> = (0..SHARED).map(|at| format!("slow{at}")).collect();
        let mut more: Vec<_> = names.iter().flat_map(|name| (0..PER_REGISTRY).map_while(|_| take(name))).collect();
        assert_eq!(slow.len() + more.len(), SHARED + 1 + names.len());
        assert!(take("honest").is_some(), "one slot is guaranteed");
        let honest = take("honest").unwrap();
        assert!(take("honest").is_none(), "no shared slot is free");
        more.pop();
        let rest: Vec<_> = (0..REGISTRIES_MAX).filter_map(|at| take(&format!("r{at}"))).collect();
        assert!(rest.len() < REGISTRIES_MAX, "the node has a limit");
        drop((slow, more, honest, rest));
        assert!(take("honest").is_some());
        assert_eq!(slots.registries.lock().unwrap().len(), 1, "unused registries are removed");
    }
}
