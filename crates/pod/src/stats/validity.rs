//! Validity of lists that were made from samples.
//!
//! On a node with many pods, lists of all objects are made from the samples of one round after the other, and are
//! requested more often than rounds complete. A caller may cache what it made of a list (encoded bytes) and need not
//! even read the samples again: while no pod or container changes and no sample in it is too old, the cached list is as
//! good as a new one. The caller makes it again after each round ([`Engine::stats_rounds`]).

use super::sampler::{STALE, is_younger};
use crate::{Engine, clock};

/// Identifies a state of the lists of pods and containers: equal generations mean equal lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(pub(super) u64);

/// Describes until when a list may be used, see [`Engine::is_valid`].
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    pub(super) changes: u64,
    /// Number of objects in the list.
    pub(super) count: usize,
    /// When the oldest of its samples was taken, in nanoseconds since the epoch.
    pub(super) oldest: u64,
}

/// Statistics of all pods or containers.
#[derive(Clone, Debug)]
pub struct StatsList<T> {
    /// One entry for each object.
    pub stats: Vec<T>,
    /// Set if the list was made from samples that had been taken before.
    pub validity: Option<Validity>,
}

impl Engine {
    /// Returns the current generation of the lists of pods and containers; resource usage does not affect it. A list
    /// that is made after this call, and omits objects that are being created ([`crate::ContainerSummary::settled`]),
    /// stays the same as long as the generation does.
    pub fn generation(&self) -> Generation {
        Generation(self.0.records.events().changes())
    }

    /// Reports whether a list of all objects would still have the same pods and containers, and its samples are not too
    /// old. Counts as a request: samples continue to be taken.
    pub fn is_valid(&self, validity: &Validity) -> bool {
        let stats = &self.0.stats;
        let valid = validity.changes == self.generation().0
            && is_younger(validity.oldest, STALE, clock::now())
            && !stats.is_quick(validity.count);
        if valid {
            stats.note_request(&self.0, true);
        }
        valid
    }
}
