//! Parses and formats RFC 3339 timestamps, in UTC or with an offset, with up to nanosecond precision.

use std::time::SystemTime;

/// Parses a timestamp such as `2026-11-21T02:26:34.123456789Z` into nanoseconds since 1970.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let mut date = date.splitn(3, '-').map(str::parse::<i64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let zone_start = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at(zone_start);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut clock = clock.splitn(3, ':').map(str::parse::<i64>);
    let (hour, minute, second) = (clock.next()?.ok()?, clock.next()?.ok()?, clock.next()?.ok()?);
    if !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
        || !(0..=9999).contains(&year)
    {
        return None;
    }
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset(zone)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(digits.parse().ok()?)
}

/// Formats a time in UTC with microseconds: `2026-11-21T02:26:34.123456Z`.
pub(crate) fn format(time: SystemTime) -> String {
    let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, micros) = (since_epoch.as_secs(), since_epoch.subsec_micros());
    let (days, clock) = (i64::try_from(seconds / 86_400).unwrap_or(0), seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Returns the year, month and day of a number of days since 1970-01-01; the inverse of [`days`].
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let (month, day) = ((5 * day_of_year + 2) / 153, day_of_year - (153 * ((5 * day_of_year + 2) / 153) + 2) / 5 + 1);
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Parses the offset from UTC, in seconds.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    Some(sign * (hours.parse::<i64>().ok()? * 3600 + minutes.parse::<i64>().ok()? * 60))
}

/// Returns the number of days since 1970-01-01 in the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years are counted from March, so that the leap day is the last one.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Parses a timestamp, or a duration before now (`90s`, `10m`, `2h`, `1d`), into nanoseconds since 1970.
pub(crate) fn since(text: &str) -> Result<i64, String> {
    if let Some(timestamp) = parse(text) {
        return Ok(timestamp);
    }
    let invalid = || format!("{text:?} is neither a duration like 10m nor a time like 2026-01-31T12:00:00Z");
    let (number, unit) = text.split_at(text.char_indices().last().map_or(0, |(index, _)| index));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(invalid()),
    };
    let number: i64 = number.parse().map_err(|_| invalid())?;
    let duration = number.checked_mul(seconds * 1_000_000_000).filter(|duration| *duration >= 0).ok_or_else(invalid)?;
    Ok(crate::human::now().saturating_sub(duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_nanoseconds() {
        assert_eq!(parse("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse("2000-02-29T00:00:00Z"), Some(951_782_400_000_000_000));
        assert_eq!(parse("2026-11-21T02:26:34.5Z"), Some(1_795_227_994_500_000_000));
        assert_eq!(parse("1970-01-01T01:00:00.000000001+01:00"), Some(1));
        assert_eq!(parse("yesterday"), None);
    }

    #[test]
    fn durations_are_subtracted_from_now() {
        let ten = since("10m").expect("valid");
        assert!((crate::human::now() - ten - 600_000_000_000).abs() < 5_000_000_000);
        assert!(since("10").is_err() && since("x").is_err() && since("é").is_err());
    }

    #[test]
    fn formatted_timestamps_can_be_parsed() {
        for seconds in [0, 951_782_400, 1_709_164_799, 1_709_164_800, 4_102_444_799] {
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::new(seconds, 123_456_000);
            let text = format(time);
            assert_eq!(
                parse(&text),
                Some(i64::try_from(seconds).expect("small") * 1_000_000_000 + 123_456_000),
                "{text}"
            );
        }
        assert_eq!(format(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }
}
