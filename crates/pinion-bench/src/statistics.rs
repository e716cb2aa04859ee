mod comparison;
mod interval;

pub(crate) use comparison::{Comparison, Noise, Scale, Verdict};
pub(crate) use interval::Estimate;

/// Fewest rounds for an interval of 95 % ([`Estimate::is_confident`]).
pub(crate) const ROUNDS_MIN: usize = 6;

/// Returns the median; not a number if there are no values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[length / 2],
        length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median([1.0, 2.0, 4.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!(median([]).is_nan());
    }
}
