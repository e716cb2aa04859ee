//! What was encoded, by the id of what it is about.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// As many more than were used of late may be kept before they are swept.
const SLACK: usize = 256;

/// Values by id, each made again when what it is made of changed.
pub(super) struct Kept<K, V>(Mutex<Table<K, V>>);

struct Table<K, V> {
    rows: HashMap<String, Entry<K, V>>,
    /// Counts openings, so that what is used no more can be told.
    turn: u64,
    used: usize,
}

struct Entry<K, V> {
    of: K,
    value: V,
    turn: u64,
}

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Self(Mutex::new(Table { rows: HashMap::new(), turn: 0, used: 0 }))
    }
}

/// The values, for one list.
pub(super) struct Open<'a, K, V>(MutexGuard<'a, Table<K, V>>);

impl<K: PartialEq, V> Kept<K, V> {
    pub(super) fn open(&self) -> Open<'_, K, V> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.turn += 1;
        table.used = 0;
        Open(table)
    }

    /// Forgets all.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).rows = HashMap::new();
    }
}

impl<K: PartialEq, V> Open<'_, K, V> {
    /// The value of `id`, made of `of`.
    pub(super) fn get(&mut self, id: &str, of: K, make: impl FnOnce() -> V) -> &V {
        let table = &mut *self.0;
        table.used += 1;
        if !table.rows.contains_key(id) {
            table.rows.insert(id.to_owned(), Entry { of, value: make(), turn: table.turn });
            return &table.rows[id].value;
        }
        let entry = table.rows.get_mut(id).expect("it is there");
        entry.turn = table.turn;
        if entry.of != of {
            entry.value = make();
            entry.of = of;
        }
        &entry.value
    }
}

impl<K, V> Drop for Open<'_, K, V> {
    fn drop(&mut self) {
        let table = &mut *self.0;
        // Only a list of many sweeps, so that those of few throw nothing away.
        if table.rows.len() > 2 * table.used + SLACK {
            let old = table.turn.saturating_sub(64);
            table.rows.retain(|_, entry| entry.turn > old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_once_and_again_when_it_changed() {
        let kept = Kept::<u8, String>::default();
        let mut made = 0;
        for (of, wanted) in [(1, 1), (1, 1), (2, 2), (2, 2), (1, 3)] {
            kept.open().get("a", of, || {
                made += 1;
                String::new()
            });
            assert_eq!(made, wanted);
        }
    }

    #[test]
    fn what_nobody_asks_for_goes() {
        let kept = Kept::<(), usize>::default();
        {
            let mut open = kept.open();
            for number in 0..1000 {
                open.get(&number.to_string(), (), || number);
            }
        }
        for _ in 0..100 {
            kept.open().get("1", (), || 0);
        }
        assert!(kept.0.lock().unwrap().rows.len() < 10);
    }
}
