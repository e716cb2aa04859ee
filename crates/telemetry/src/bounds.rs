//! Upper bounds of histogram buckets in nanoseconds, ascending. Values above the last bound are counted too.

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Maximum number of bounds of a histogram.
pub(crate) const BOUNDS_MAX: usize = 18;

/// Bounds for requests: from half a millisecond (a list) to five minutes (a pull, a grace period).
pub static REQUEST: [u64; 18] = [
    MS / 2,
    MS,
    2 * MS + MS / 2,
    5 * MS,
    10 * MS,
    25 * MS,
    50 * MS,
    100 * MS,
    250 * MS,
    500 * MS,
    S,
    2 * S + S / 2,
    5 * S,
    10 * S,
    30 * S,
    60 * S,
    120 * S,
    300 * S,
];

/// Bounds for messages between two processes on one machine: from 50 µs to ten seconds.
pub static MESSAGE: [u64; 15] = [
    50 * US,
    100 * US,
    250 * US,
    500 * US,
    MS,
    2 * MS + MS / 2,
    5 * MS,
    10 * MS,
    25 * MS,
    50 * MS,
    100 * MS,
    500 * MS,
    S,
    5 * S,
    10 * S,
];

/// Bounds for data transfers: from ten milliseconds to ten minutes.
pub static TRANSFER: [u64; 13] =
    [10 * MS, 50 * MS, 100 * MS, 250 * MS, 500 * MS, S, 2 * S + S / 2, 5 * S, 10 * S, 30 * S, 60 * S, 300 * S, 600 * S];
