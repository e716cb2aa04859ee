//! Confidence intervals of medians, without assumptions about the distribution.

use serde::Serialize;

use super::median;

/// Desired probability that an interval contains the value that it estimates.
const CONFIDENCE: f64 = 0.95;

/// A median, and an interval for the median of the distribution from which its values are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Estimate {
    /// Median of the values.
    pub(crate) value: f64,
    /// Lower end of the interval.
    pub(crate) low: f64,
    /// Upper end of the interval.
    pub(crate) high: f64,
    /// Probability that the interval contains the median: at least 0.95 for six values and more.
    pub(crate) confidence: f64,
}

impl Estimate {
    /// Estimates the median of independent values; `None` if there are none, or if one is not finite.
    ///
    /// The number of values below the true median is binomially distributed with p = 1/2, so the k-th smallest and the k-th largest value
    /// enclose it with probability 1 − 2 P(X < k) (David and Nagaraja, Order Statistics, 7.1). This is the narrowest such interval
    /// of at least 95 %; with fewer than six values it is the whole range.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (outside, confidence) = outside(sorted.len());
        let value = median(sorted.iter().copied());
        Some(Self { value, low: sorted[outside], high: sorted[sorted.len() - 1 - outside], confidence })
    }

    /// Returns whether there were enough values for an interval of the desired confidence: at least six.
    pub(crate) fn is_confident(&self) -> bool {
        self.confidence >= CONFIDENCE
    }

    /// Returns whether the intervals of two estimates have a value in common, or are at most `resolution` apart.
    pub(crate) fn overlaps(&self, other: &Self, resolution: f64) -> bool {
        self.low <= other.high + resolution && other.low <= self.high + resolution
    }

    /// Returns whether the interval contains a value.
    #[cfg(test)]
    fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// Returns how many of `count` sorted values are outside of the interval at each end, and its confidence.
fn outside(count: usize) -> (usize, f64) {
    // ln P(X = k), from which P(X ≤ k) is added up: 2^−count alone would underflow.
    let mut log_probability = -(count as f64) * std::f64::consts::LN_2;
    let mut below = log_probability.exp();
    let mut outside = (0, 1.0 - 2.0 * below);
    for k in 1..count.div_ceil(2) {
        log_probability += ((count - k + 1) as f64 / k as f64).ln();
        below += log_probability.exp();
        if 1.0 - 2.0 * below < CONFIDENCE {
            break;
        }
        outside = (k, 1.0 - 2.0 * below);
    }
    (outside.0, outside.1.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_tables() {
        // Conover, Practical Nonparametric Statistics, table of the sign test: ranks (k, n + 1 − k) for 95 %.
        for (count, rank) in [(6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6), (25, 8), (50, 18), (100, 40)] {
            let (outside, confidence) = outside(count);
            assert_eq!(outside + 1, rank, "{count} values");
            assert!((0.95..0.995).contains(&confidence), "{count} values: {confidence}");
        }
        assert!((outside(5).1 - 0.9375).abs() < 1e-9 && outside(1).1.abs() < 1e-9);
        assert_eq!(outside(10_000).0 + 1, 4902);
    }

    #[test]
    fn an_interval_contains_the_median_of_its_distribution_in_95_of_100_runs() {
        // Uniform values from a linear congruential generator (Knuth, MMIX), whose median is 1/2.
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let runs = 4000;
        let mut contained = 0;
        for _ in 0..runs {
            let values: Vec<f64> = (0..15).map(|_| next()).collect();
            contained += usize::from(Estimate::of(&values).is_some_and(|estimate| estimate.contains(0.5)));
        }
        let share = contained as f64 / f64::from(runs);
        assert!((share - outside(15).1).abs() < 0.015, "{share}");
    }

    #[test]
    fn there_is_no_estimate_of_nothing_and_of_values_that_are_not_finite() {
        assert_eq!((Estimate::of(&[]), Estimate::of(&[1.0, f64::NAN])), (None, None));
        let one = Estimate::of(&[3.0]).map(|estimate| (estimate.low, estimate.value, estimate.high));
        assert_eq!(one, Some((3.0, 3.0, 3.0)));
    }
}
