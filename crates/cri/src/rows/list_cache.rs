//! A cache of complete, unfiltered lists.
//!
//! Several parts of kubelet request all pods and all containers without a filter. On a node with a thousand pods
//! building such a list takes milliseconds; checking that nothing changed takes one comparison.

use std::sync::{Arc, Mutex, PoisonError};

use cri_proto::encoded::Row;

/// The encoded rows of a list.
pub(crate) type Rows = Arc<[Row]>;

/// A complete list, with a key that shows whether it is still current.
pub(super) struct ListCache<K>(Mutex<Option<(K, Rows)>>);

impl<K> Default for ListCache<K> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<K> ListCache<K> {
    /// Returns the list if `is_current` accepts its key.
    pub(super) fn get(&self, is_current: impl FnOnce(&K) -> bool) -> Option<Rows> {
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.as_ref().filter(|(key, _)| is_current(key)).map(|(_, rows)| Arc::clone(rows))
    }

    /// Stores the list with its key; without a key, empties the cache.
    pub(super) fn set(&self, key: Option<K>, rows: &Rows) {
        let cached = key.map(|key| (key, Arc::clone(rows)));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = cached;
    }

    /// Empties the cache.
    pub(super) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cached_while_its_key_is_current() {
        let cache = ListCache::default();
        assert!(cache.get(|_: &u8| true).is_none());
        let rows: Rows = vec![Row::encode(&cri_proto::v1::PodSandbox::default())].into();
        cache.set(Some(1), &rows);
        assert_eq!(cache.get(|key| *key == 1), Some(Arc::clone(&rows)));
        assert!(cache.get(|key| *key == 2).is_none());
        cache.set(None, &rows);
        assert!(cache.get(|_| true).is_none());
    }
}
