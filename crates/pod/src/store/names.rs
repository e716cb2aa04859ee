//! Names of existing objects. A name is assigned as the last step of an object's creation, or after a restart.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Assigned names of one kind of object, each with the id of its owner.
pub(crate) struct Names<K>(Mutex<HashMap<K, String>>);

impl<K> Default for Names<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq> Names<K> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the id of the object that has a name.
    pub(crate) fn owner(&self, name: &K) -> Option<String> {
        self.lock().get(name).cloned()
    }

    /// Assigns a name to an object.
    pub(crate) fn assign(&self, name: K, id: String) {
        self.lock().insert(name, id);
    }

    /// Releases a name if it is assigned to this object.
    pub(crate) fn release(&self, name: &K, id: &str) {
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
        let names = Names::<u8>::default();
        names.assign(1, "old".to_owned());
        names.assign(1, "new".to_owned());
        names.release(&1, "old");
        assert_eq!(names.owner(&1).as_deref(), Some("new"));
        names.release(&1, "new");
        assert_eq!(names.owner(&1), None);
    }
}
