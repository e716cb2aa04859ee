//! The clocks of the guest.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// Returns the time since the epoch in nanoseconds.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let whole = u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(SECOND);
    whole.saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Returns the time since boot.
pub(crate) fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Sets the time, in nanoseconds since the epoch.
pub(crate) fn set(now: u64) -> rustix::io::Result<()> {
    let seconds = i64::try_from(now / SECOND).unwrap_or(i64::MAX);
    let nanoseconds = i64::try_from(now % SECOND).unwrap_or(0);
    clock_settime(ClockId::Realtime, Timespec { tv_sec: seconds, tv_nsec: nanoseconds })
}
