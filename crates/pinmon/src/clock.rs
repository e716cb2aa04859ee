//! Clocks.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the epoch, for logs and exit times.
pub(crate) fn realtime() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Time since an arbitrary fixed moment, for deadlines.
pub(crate) fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}
