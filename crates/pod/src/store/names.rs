//! Names of existing objects. A name is assigned as the last step of an object's creation, or after a restart.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Assigned names of one kind of object, each with the id of its owner.
pub(crate) struct Names<K, I>(Mutex<HashMap<K, I>>);

impl<K, I> Default for Names<K, I> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq, I: Clone + PartialEq> Names<K, I> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, I>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the id of the object that has a name.
    pub(crate) fn owner(&self, name: &K) -> Option<I> {
        self.lock().get(name).cloned()
    }

    /// Assigns a name to an object.
    pub(crate) fn assign(&self, name: K, id: I) {
        self.lock().insert(name, id);
    }

    /// Releases a name if it is assigned to this object.
    pub(crate) fn release(&self, name: &K, id: &I) {
        let mut names = self.lock();
        if names.get(name).is_some_and(|owner| owner == id) {
            names.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_released_by_its_owner_only() {
        let names = Names::<u8, &str>::default();
        names.assign(1, "old");
        names.assign(1, "new");
        names.release(&1, &"old");
        assert_eq!(names.owner(&1), Some("new"));
        names.release(&1, &"new");
        assert_eq!(names.owner(&1), None);
    }
}
