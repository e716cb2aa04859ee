//! A cache of encoded values by the id of their object.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// How many unused entries are kept in addition to those in use before old ones are removed.
const SLACK: usize = 256;

/// Values by id. A value is created again when its key changes.
pub(super) struct RowCache<K, V>(Mutex<Table<K, V>>);

struct Table<K, V> {
    rows: HashMap<String, Entry<K, V>>,
    /// Counts calls of [`RowCache::open`], so that entries that are not used any longer can be recognized.
    generation: u64,
    used: usize,
}

struct Entry<K, V> {
    key: K,
    value: V,
    generation: u64,
}

impl<K, V> Default for RowCache<K, V> {
    fn default() -> Self {
        Self(Mutex::new(Table { rows: HashMap::new(), generation: 0, used: 0 }))
    }
}

/// The locked cache, for the creation of one list.
pub(super) struct Open<'a, K, V>(MutexGuard<'a, Table<K, V>>);

impl<K: PartialEq, V> RowCache<K, V> {
    pub(super) fn open(&self) -> Open<'_, K, V> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.generation += 1;
        table.used = 0;
        Open(table)
    }

    /// Removes all entries.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).rows = HashMap::new();
    }
}

impl<K: PartialEq, V> Open<'_, K, V> {
    /// Returns the value of `id`, and creates it if it is missing or its key differs.
    pub(super) fn get(&mut self, id: &str, key: K, make: impl FnOnce() -> V) -> &V {
        let table = &mut *self.0;
        table.used += 1;
        if !table.rows.contains_key(id) {
            table.rows.insert(id.to_owned(), Entry { key, value: make(), generation: table.generation });
            return &table.rows[id].value;
        }
        let entry = table.rows.get_mut(id).expect("checked above");
        entry.generation = table.generation;
        if entry.key != key {
            entry.value = make();
            entry.key = key;
        }
        &entry.value
    }
}

impl<K, V> Drop for Open<'_, K, V> {
    fn drop(&mut self) {
        let table = &mut *self.0;
        // Only a list with many entries removes old ones, so that short lists do not discard the entries of long ones.
        if table.rows.len() > 2 * table.used + SLACK {
            let old = table.generation.saturating_sub(64);
            table.rows.retain(|_, entry| entry.generation > old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_created_again_when_its_key_changes() {
        let cache = RowCache::<u8, String>::default();
        let mut created = 0;
        for (key, expected) in [(1, 1), (1, 1), (2, 2), (2, 2), (1, 3)] {
            cache.open().get("a", key, || {
                created += 1;
                String::new()
            });
            assert_eq!(created, expected);
        }
    }

    #[test]
    fn unused_entries_are_removed() {
        let cache = RowCache::<(), usize>::default();
        {
            let mut open = cache.open();
            for number in 0..1000 {
                open.get(&number.to_string(), (), || number);
            }
        }
        for _ in 0..100 {
            cache.open().get("1", (), || 0);
        }
        assert!(cache.0.lock().unwrap().rows.len() < 10);
    }
}
