mod comparison;
mod interval;

use std::time::Duration;

use serde::Serialize;

pub(crate) use comparison::{Comparison, Noise, Scale, Verdict};
use interval::CONFIDENCE;
pub(crate) use interval::Estimate;

/// A summary of durations.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Summary {
    /// Number of samples.
    pub(crate) count: usize,
    /// Mean in milliseconds.
    pub(crate) mean_ms: f64,
    /// Minimum in milliseconds.
    pub(crate) min_ms: f64,
    /// Median in milliseconds.
    pub(crate) p50_ms: f64,
    /// 99th percentile in milliseconds.
    pub(crate) p99_ms: f64,
    /// Maximum in milliseconds.
    pub(crate) max_ms: f64,
}

impl Summary {
    /// Summarizes samples; all values are zero if there are none.
    pub(crate) fn of(samples: &[Duration]) -> Self {
        let mut sorted: Vec<f64> = samples.iter().map(|d| d.as_secs_f64() * 1000.0).collect();
        sorted.sort_by(f64::total_cmp);
        let rank =
            |q: f64| sorted.get(((sorted.len() as f64 * q).ceil() as usize).saturating_sub(1)).copied().unwrap_or(0.0);
        let mean_ms = sorted.iter().sum::<f64>() / sorted.len().max(1) as f64;
        let (min_ms, p50_ms, p99_ms, max_ms) = (rank(0.0), rank(0.5), rank(0.99), rank(1.0));
        Self { count: sorted.len(), mean_ms, min_ms, p50_ms, p99_ms, max_ms }
    }
}

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
    use super::*;

    #[test]
    fn percentiles_use_the_nearest_rank() {
        let samples: Vec<_> = (1..=100).rev().map(Duration::from_millis).collect();
        let summary = Summary::of(&samples);
        assert_eq!((summary.count, summary.min_ms, summary.p50_ms, summary.p99_ms), (100, 1.0, 50.0, 99.0));
        assert_eq!((summary.mean_ms, summary.max_ms), (50.5, 100.0));
    }

    #[test]
    fn a_summary_of_nothing_is_zero() {
        let summary = Summary::of(&[]);
        assert_eq!((summary.count, summary.mean_ms, summary.max_ms), (0, 0.0, 0.0));
    }
}
