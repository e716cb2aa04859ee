use std::sync::Arc;

use cgroup::Group;

use super::rate::Rate;

/// Age up to which a sample is as good as a new one, in nanoseconds.
pub(super) const FRESH: u64 = 200_000_000;
/// Age beyond which a sample is never reported, in nanoseconds.
pub(super) const STALE: u64 = 15_000_000_000;

/// A sample, and the data needed for the next one.
pub(super) struct KnownSample<T> {
    pub(super) sample: Arc<T>,
    /// The parent cgroup of a pod's containers; `None` for a container.
    pub(super) group: Option<Arc<Group>>,
    pub(super) rate: Rate,
}

/// Reports whether a sample taken at this time is at most as old as `age`. A sample from the future was taken before
/// the wall clock was set back.
pub(super) fn is_younger(at: u64, age: u64, now: u64) -> bool {
    now.checked_sub(at).is_some_and(|passed| passed <= age)
}
