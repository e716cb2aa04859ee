//! Moments as logs have them: RFC 3339, UTC or with an offset, to the nanosecond.

use std::time::SystemTime;

/// `2026-11-21T02:26:34.123456789Z` → nanoseconds since 1970.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let mut date = date.splitn(3, '-').map(str::parse::<i64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let at = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at(at);
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

/// In UTC, to the microsecond: `2026-11-21T02:26:34.123456Z`.
pub(crate) fn format(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, micros) = (since.as_secs(), since.subsec_micros());
    let (days, clock) = (i64::try_from(seconds / 86_400).unwrap_or(0), seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// The reverse of [`days`].
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let (month, day) = ((5 * of_year + 2) / 153, of_year - (153 * ((5 * of_year + 2) / 153) + 2) / 5 + 1);
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Seconds east of Greenwich.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    Some(sign * (hours.parse::<i64>().ok()? * 3600 + minutes.parse::<i64>().ok()? * 60))
}

/// Days from 1970-01-01 in the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last one.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// `90s`, `10m`, `2h`, `1d` before now, or a moment.
pub(crate) fn since(text: &str) -> Result<i64, String> {
    if let Some(moment) = parse(text) {
        return Ok(moment);
    }
    let wrong = || format!("{text:?} is neither a duration like 10m nor a time like 2026-01-31T12:00:00Z");
    let (number, unit) = text.split_at(text.char_indices().last().map_or(0, |(at, _)| at));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: i64 = number.parse().map_err(|_| wrong())?;
    let back = number.checked_mul(seconds * 1_000_000_000).filter(|back| *back >= 0).ok_or_else(wrong)?;
    Ok(crate::human::now().saturating_sub(back))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_nanoseconds() {
        assert_eq!(parse("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse("2000-02-29T00:00:00Z"), Some(951_782_400_000_000_000));
        assert_eq!(parse("2026-11-21T02:26:34.5Z"), Some(1_795_227_994_500_000_000));
        assert_eq!(parse("1970-01-01T01:00:00.000000001+01:00"), Some(1));
        assert_eq!(parse("yesterday"), None);
    }

    #[test]
    fn durations_count_back() {
        let ten = since("10m").expect("valid");
        assert!((crate::human::now() - ten - 600_000_000_000).abs() < 5_000_000_000);
        assert!(since("10").is_err() && since("x").is_err() && since("é").is_err());
    }

    #[test]
    fn what_is_written_is_read_again() {
        for seconds in [0, 951_782_400, 1_709_164_799, 1_709_164_800, 4_102_444_799] {
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::new(seconds, 123_456_000);
            let text = format(at);
            assert_eq!(
                parse(&text),
                Some(i64::try_from(seconds).expect("small") * 1_000_000_000 + 123_456_000),
                "{text}"
            );
        }
        assert_eq!(format(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }
}
