//! Validity of lists that were made from samples.
//!
//! On a node with many pods, lists of all objects are made from the samples of one round after the other, and are
//! requested more often than rounds complete. A caller may cache what it made of a list (encoded bytes) and need not
//! even read the samples again: while no pod or container changes and no sample in it is too old, the cached list is as
//! good as a new one. The caller makes it again after each round ([`crate::Engine::stats_rounds`]).

/// Identifies a state of the lists of pods and containers: equal generations mean equal lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(pub(super) u64);

/// Describes until when a list may be used, see [`crate::Engine::is_valid`].
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
