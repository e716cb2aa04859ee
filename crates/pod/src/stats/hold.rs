//! How long a list stays as it is.
//!
//! On a node of many pods the lists of everything are made of the samples of one round after the other, and asked for
//! more often than rounds end. Whoever made one of them may keep what became of it (encoded bytes) and need not even
//! look through the samples again: as long as no pod or container changed and no sample in it is too old to be told, it
//! is as good as a new one. Whoever keeps it makes it anew after each round ([`Engine::stats_rounds`]).

use super::sampler::{STALE, is_younger};
use crate::{Engine, clock};

/// What is known of pods and containers: the same figures, the same lists of pods and containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub(super) u64);

/// As long as it holds, the list is one that can be told.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    pub(super) changes: u64,
    /// How many objects were to be measured.
    pub(super) count: usize,
    /// When the oldest of its samples was taken, nanoseconds since the epoch.
    pub(super) oldest: u64,
}

/// Figures of everything.
#[derive(Clone, Debug)]
pub struct Sampled<T> {
    /// A row for each.
    pub stats: Vec<T>,
    /// Set where they are samples that were taken before.
    pub hold: Option<Hold>,
}

impl Engine {
    /// What is known of pods and containers, their use of resources apart. A list of them that is made after the mark
    /// was taken, and of nothing that is only just being made ([`crate::ContainerGlance::settled`]), is the same as
    /// long as the mark is.
    pub fn mark(&self) -> Mark {
        Mark(self.0.records.events().changes())
    }

    /// Whether a list of everything would be of the same pods and containers still, and its samples can be told. It
    /// counts as asking for it: samples go on being taken.
    pub fn holds(&self, hold: &Hold) -> bool {
        let stats = &self.0.stats;
        let same = hold.changes == self.mark().0
            && is_younger(hold.oldest, STALE, clock::now())
            && !stats.is_quick(hold.count);
        if same {
            stats.asked(&self.0, true);
        }
        same
    }
}
