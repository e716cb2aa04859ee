//! Lists of everything, kept as long as they are the same.
//!
//! A kubelet asks for all pods and all containers, without a filter, and several of its parts ask at once. On a node of
//! a thousand pods to look through them takes milliseconds, and to see that nothing changed takes one comparison.

use std::sync::{Arc, Mutex, PoisonError};

use cri_proto::encoded::Row;

/// The rows of a list.
pub(crate) type Rows = Arc<[Row]>;

/// One list of everything, and what it stays the same with.
pub(super) struct Whole<K>(Mutex<Option<(K, Rows)>>);

impl<K> Default for Whole<K> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<K> Whole<K> {
    /// The list, where it is the same still.
    pub(super) fn get(&self, same: impl FnOnce(&K) -> bool) -> Option<Rows> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|(key, _)| same(key)).map(|(_, rows)| Arc::clone(rows))
    }

    /// Keeps this list, or none.
    pub(super) fn keep(&self, key: Option<K>, rows: &Rows) {
        let known = key.map(|key| (key, Arc::clone(rows)));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// Forgets it.
    pub(super) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_kept_while_it_is_the_same() {
        let whole = Whole::default();
        assert!(whole.get(|_: &u8| true).is_none());
        let rows: Rows = vec![Row::of(&cri_proto::v1::PodSandbox::default())].into();
        whole.keep(Some(1), &rows);
        assert_eq!(whole.get(|key| *key == 1), Some(Arc::clone(&rows)));
        assert!(whole.get(|key| *key == 2).is_none());
        whole.keep(None, &rows);
        assert!(whole.get(|_| true).is_none());
    }
}
