/// Formats a value with three significant digits, and whole numbers from 100 on.
pub(crate) fn short(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() {
        return "–".to_owned();
    }
    if magnitude == 0.0 || magnitude >= 100.0 || (value.fract() == 0.0 && magnitude >= 1.0) {
        return format!("{value:.0}");
    }
    let before_point = magnitude.log10().floor() as i32 + 1;
    format!("{value:.*}", usize::try_from(3 - before_point).unwrap_or(0).min(6))
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn numbers_have_three_digits() {
        let cases = [
            (0.0, "0"),
            (1234.5, "1234"),
            (99.96, "100.0"),
            (12.345, "12.3"),
            (1.2345, "1.23"),
            (0.012_345, "0.0123"),
            (8.0, "8"),
            (f64::NAN, "–"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text, "{value}");
        }
    }
}
