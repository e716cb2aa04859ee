use std::time::Duration;

use serde::Serialize;

/// A summary of durations.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Summary {
    /// Number of samples.
    pub(crate) count: usize,
    /// Minimum in milliseconds.
    pub(crate) min_ms: f64,
    /// Median in milliseconds.
    pub(crate) p50_ms: f64,
    /// 99th percentile in milliseconds.
    pub(crate) p99_ms: f64,
}

impl Summary {
    /// Summarizes samples; all values are zero if there are none.
    pub(crate) fn of(samples: &[Duration]) -> Self {
        let mut sorted: Vec<f64> = samples.iter().map(|d| d.as_secs_f64() * 1000.0).collect();
        sorted.sort_by(f64::total_cmp);
        let rank =
            |q: f64| sorted.get(((sorted.len() as f64 * q).ceil() as usize).saturating_sub(1)).copied().unwrap_or(0.0);
        Self { count: sorted.len(), min_ms: rank(0.0), p50_ms: rank(0.5), p99_ms: rank(0.99) }
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
    }

    #[test]
    fn a_summary_of_nothing_is_zero() {
        assert_eq!(Summary::of(&[]).count, 0);
    }
}
