//! Parsers for amounts in command-line options.

/// Parses a size such as `512m`, `1.5g`, `64MiB` or `1000000` into bytes. Units are binary, as usual for memory limits.
pub(crate) fn bytes(text: &str) -> Result<i64, String> {
    let unit_start = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_start);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "ki" | "kib" => 10,
        "m" | "mb" | "mi" | "mib" => 20,
        "g" | "gb" | "gi" | "gib" => 30,
        "t" | "tb" | "ti" | "tib" => 40,
        _ => return Err(format!("{text:?} is not a size like 512m or 1.5g")),
    };
    let (thousandths, invalid) = (decimal(number, 3), || format!("{text:?} is not a size like 512m or 1.5g"));
    let bytes = thousandths.ok_or_else(invalid)?.checked_mul(1 << shift).ok_or_else(invalid)? / 1000;
    i64::try_from(bytes).map_err(|_| invalid())
}

/// Parses a number of cores such as `0.5` or `2` into thousandths of a core.
pub(crate) fn cores(text: &str) -> Result<i64, String> {
    match decimal(text, 3) {
        Some(milli @ 1..=1_000_000_000) => i64::try_from(milli).map_err(|error| error.to_string()),
        _ => Err(format!("{text:?} is not a number of cores like 0.5 or 2")),
    }
}

/// Parses a decimal number and multiplies it by 10^`places`; further digits are truncated.
fn decimal(text: &str, places: usize) -> Option<u128> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.chars().all(|c| c.is_ascii_digit());
    if !digits(whole) || !digits(part) || whole.len() + part.len() == 0 || whole.len() > 18 {
        return None;
    }
    let part: String = part.chars().chain(std::iter::repeat('0')).take(places).collect();
    format!("{whole}{part}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes() {
        assert_eq!(
            [bytes("0"), bytes("100"), bytes("1k"), bytes("512MiB"), bytes("1.5g")],
            [Ok(0), Ok(100), Ok(1024), Ok(512 << 20), Ok(3 << 29)]
        );
        for invalid in ["", "m", "-1", "1x", "1.2.3", "99999999t", "1 2"] {
            assert!(bytes(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn cores_are_thousandths() {
        assert_eq!([cores("0.5"), cores("2"), cores("1.2345")], [Ok(500), Ok(2000), Ok(1234)]);
        for invalid in ["0", "", "x", "-1", "0.0001"] {
            assert!(cores(invalid).is_err(), "{invalid}");
        }
    }
}
