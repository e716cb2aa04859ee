//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time in nanoseconds since the epoch.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
