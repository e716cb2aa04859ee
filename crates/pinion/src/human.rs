//! Formats numbers for tables.

use std::time::{SystemTime, UNIX_EPOCH};

/// Length of an id in a table: enough to be unique, and the length that Docker uses.
pub(crate) const SHORT: usize = 12;

/// Shortens an id for a table.
pub(crate) fn short(id: &str) -> &str {
    let id = id.strip_prefix("sha256:").unwrap_or(id);
    id.get(..SHORT).unwrap_or(id)
}

/// Formats bytes with a decimal unit, as is usual for images.
pub(crate) fn size(bytes: u64) -> String {
    scaled(bytes, 1000, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// Formats bytes with a binary unit, as is usual for memory.
pub(crate) fn memory(bytes: u64) -> String {
    scaled(bytes, 1024, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

fn scaled(bytes: u64, base: u64, units: &[&str]) -> String {
    let (mut value, mut unit, mut remainder) = (bytes, 0, 0);
    while value >= base && unit + 1 < units.len() {
        remainder = value % base;
        value /= base;
        unit += 1;
    }
    match value {
        0..10 if unit > 0 => format!("{value}.{}{}", remainder * 10 / base, units[unit]),
        _ => format!("{value}{}", units[unit]),
    }
}

/// Formats the time since `since` (nanoseconds since 1970) in one unit: `3m`, `5h`.
pub(crate) fn age(since: i64) -> String {
    duration(now().saturating_sub(since))
}

/// Formats nanoseconds in one unit.
pub(crate) fn duration(nanoseconds: i64) -> String {
    let seconds = nanoseconds.max(0) / 1_000_000_000;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns the current time in nanoseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns CPU time as a percentage of one core. Both times are in nanoseconds.
pub(crate) fn percent(used: u64, elapsed: u64) -> f64 {
    match elapsed {
        0 => 0.0,
        #[allow(clippy::cast_precision_loss)]
        elapsed => used as f64 * 100.0 / elapsed as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_unit() {
        assert_eq!(
            [size(0), size(999), size(1000), size(1_234_567), size(12_345_678)],
            ["0B", "999B", "1.0kB", "1.2MB", "12MB"]
        );
        assert_eq!([memory(1023), memory(1536), memory(u64::MAX)], ["1023B", "1.5KiB", "15EiB"]);
    }

    #[test]
    fn durations_have_one_unit() {
        let second = 1_000_000_000;
        assert_eq!(duration(-5), "0s");
        assert_eq!([duration(119 * second), duration(121 * second), duration(7200 * second)], ["119s", "2m", "2h"]);
        assert_eq!(duration(3 * 86_400 * second), "3d");
    }

    #[test]
    fn ids_are_shortened() {
        assert_eq!(short("sha256:0123456789abcdef"), "0123456789ab");
        assert_eq!(short("abc"), "abc");
    }

    #[test]
    fn a_busy_core_is_a_hundred_percent() {
        assert!((percent(5, 5) - 100.0).abs() < f64::EPSILON);
        assert!(percent(5, 0).abs() < f64::EPSILON);
    }
}
