//! Outputs by the serial numbers of their containers.

use std::collections::BTreeMap;

use super::streams::Output;

/// Outputs of containers, and those of deleted containers that are not in their logs yet.
#[derive(Default)]
pub(crate) struct OutputMap {
    pub(super) live: BTreeMap<u64, Output>,
    pub(super) orphans: BTreeMap<u64, Output>,
}

impl OutputMap {
    /// Adds the output of a container.
    pub(crate) fn insert(&mut self, serial: u64, output: Output) {
        self.live.insert(serial, output);
    }

    /// Adds the output of a deleted container, which the previous program of this process had.
    pub(crate) fn restore_orphan(&mut self, serial: u64, output: Output) {
        self.orphans.insert(serial, output);
    }

    /// Removes the output of a container.
    pub(crate) fn remove(&mut self, serial: u64) -> Option<Output> {
        self.live.remove(&serial)
    }

    /// Returns the output of a container that is not deleted.
    pub(crate) fn get(&self, serial: u64) -> Option<&Output> {
        self.live.get(&serial)
    }

    /// Returns the output of a container, which may be deleted.
    pub(crate) fn get_mut(&mut self, serial: u64) -> Option<&mut Output> {
        match self.live.get_mut(&serial) {
            None => self.orphans.get_mut(&serial),
            output => output,
        }
    }

    /// Returns all outputs: first those of containers, then those of deleted ones.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Output)> {
        self.live.iter().chain(&self.orphans).map(|(serial, output)| (*serial, output))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Output)> {
        self.live.iter_mut().chain(&mut self.orphans).map(|(serial, output)| (*serial, output))
    }

    /// Returns the output of deleted containers.
    pub(crate) fn orphans(&self) -> impl Iterator<Item = (u64, &Output)> {
        self.orphans.iter().map(|(serial, output)| (*serial, output))
    }

    /// Whether output of a deleted container is not in its log yet.
    pub(crate) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }
}
