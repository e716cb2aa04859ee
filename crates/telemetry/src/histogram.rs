use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::bounds;

/// A histogram of durations: the number of observations per bucket, and their sum.
#[derive(Debug)]
pub struct Histogram {
    /// Upper bounds of the buckets in nanoseconds, ascending.
    bounds: &'static [u64],
    /// Number of observations per bucket, not cumulative.
    buckets: [AtomicU64; bounds::BOUNDS_MAX],
    overflow: AtomicU64,
    /// Sum of all observations in nanoseconds.
    sum: AtomicU64,
}

/// A snapshot of a histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Upper bounds in nanoseconds, with the cumulative numbers of observations.
    pub buckets: Vec<(u64, u64)>,
    /// Number of all observations, including those above the last bound.
    pub count: u64,
    /// Sum of all observations in nanoseconds.
    pub sum: u64,
}

impl Histogram {
    /// Creates a histogram with these bounds (see [`bounds`]).
    ///
    /// # Panics
    /// Panics if there are more bounds than a histogram can have, or they are not ascending. In a `const` or `static`
    /// this is a compile error.
    #[must_use]
    pub const fn new(bounds: &'static [u64]) -> Self {
        assert!(bounds.len() <= bounds::BOUNDS_MAX, "too many bounds");
        let mut n = 1;
        while n < bounds.len() {
            assert!(bounds[n - 1] < bounds[n], "bounds must be ascending");
            n += 1;
        }
        Self {
            bounds,
            buckets: [const { AtomicU64::new(0) }; bounds::BOUNDS_MAX],
            overflow: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }

    /// Records an observation.
    pub fn observe(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let index = self.bounds.partition_point(|bound| *bound < nanoseconds);
        self.buckets[..self.bounds.len()].get(index).unwrap_or(&self.overflow).fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Returns a snapshot.
    #[must_use]
    pub fn read(&self) -> HistogramSnapshot {
        let mut count = 0;
        let mut buckets = Vec::with_capacity(self.bounds.len());
        for (bound, bucket) in self.bounds.iter().zip(&self.buckets) {
            count += bucket.load(Ordering::Relaxed);
            buckets.push((*bound, count));
        }
        count += self.overflow.load(Ordering::Relaxed);
        HistogramSnapshot { buckets, count, sum: self.sum.load(Ordering::Relaxed) }
    }
}

impl Default for Histogram {
    /// Creates a histogram with the bounds for requests.
    fn default() -> Self {
        Self::new(&bounds::REQUEST)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::default();
        histogram.observe(Duration::from_nanos(bounds::REQUEST[0]));
        histogram.observe(Duration::from_nanos(bounds::REQUEST[0] + 1));
        histogram.observe(Duration::from_secs(301));
        histogram.observe(Duration::MAX);
        let snapshot = histogram.read();
        assert_eq!((snapshot.buckets[0].1, snapshot.buckets[1].1, snapshot.buckets[17].1), (1, 2, 2));
        assert_eq!(snapshot.count, 4);
    }

    proptest! {
        #[test]
        fn buckets_agree_with_the_observations(durations in proptest::collection::vec(0u64..400_000_000_000, 0..50)) {
            let histogram = Histogram::new(&bounds::MESSAGE);
            durations.iter().for_each(|duration| histogram.observe(Duration::from_nanos(*duration)));
            let snapshot = histogram.read();
            prop_assert_eq!(snapshot.count, durations.len() as u64);
            prop_assert_eq!(snapshot.sum, durations.iter().sum::<u64>());
            for (bound, count) in snapshot.buckets {
                prop_assert_eq!(count, durations.iter().filter(|duration| **duration <= bound).count() as u64);
            }
        }
    }
}
