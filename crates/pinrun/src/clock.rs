//! Timestamps of the log and of container state.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time in UTC as RFC 3339 with nanoseconds.
pub(crate) fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339(now.as_secs(), now.subsec_nanos())
}

fn rfc3339(seconds: u64, nanoseconds: u32) -> String {
    let (year, month, day) = date(seconds / 86_400);
    let second = seconds % 86_400;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z")
}

/// Converts days since 1970-01-01 to year, month and day of the Gregorian calendar. Years are counted from March, so
/// that the leap day is the last day of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_formatted_as_rfc_3339() {
        assert_eq!(rfc3339(0, 0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(rfc3339(951_782_400, 5), "2000-02-29T00:00:00.000000005Z");
        assert_eq!(rfc3339(1_735_689_599, 999_999_999), "2024-12-31T23:59:59.999999999Z");
        assert_eq!(rfc3339(4_107_542_400, 0), "2100-03-01T00:00:00.000000000Z");
    }
}
