use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::bounds;

/// How long things took: how many within each bound, and their sum.
#[derive(Debug)]
pub struct Histogram {
    /// Nanoseconds, ascending.
    bounds: &'static [u64],
    /// As many as bounds; what is within a smaller bound is not counted again.
    within: [AtomicU64; bounds::MOST],
    over: AtomicU64,
    /// Nanoseconds.
    sum: AtomicU64,
}

/// A histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Bound (nanoseconds), and how many were within it: each count includes those before it.
    pub within: Vec<(u64, u64)>,
    /// All, those beyond the last bound too.
    pub count: u64,
    /// Nanoseconds.
    pub sum: u64,
}

impl Histogram {
    /// With these bounds (see [`bounds`]).
    ///
    /// # Panics
    /// When there are more bounds than a histogram can have, or they do not ascend; in a `const` or `static` that is an
    /// error of the compiler.
    #[must_use]
    pub const fn new(bounds: &'static [u64]) -> Self {
        assert!(bounds.len() <= bounds::MOST, "too many bounds");
        let mut n = 1;
        while n < bounds.len() {
            assert!(bounds[n - 1] < bounds[n], "bounds must ascend");
            n += 1;
        }
        Self {
            bounds,
            within: [const { AtomicU64::new(0) }; bounds::MOST],
            over: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }

    /// One more that took so long.
    pub fn observe(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let place = self.bounds.partition_point(|bound| *bound < took);
        self.within[..self.bounds.len()].get(place).unwrap_or(&self.over).fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(took, Ordering::Relaxed);
    }

    /// As it is now.
    #[must_use]
    pub fn read(&self) -> Reading {
        let mut count = 0;
        let mut within = Vec::with_capacity(self.bounds.len());
        for (bound, bucket) in self.bounds.iter().zip(&self.within) {
            count += bucket.load(Ordering::Relaxed);
            within.push((*bound, count));
        }
        count += self.over.load(Ordering::Relaxed);
        Reading { within, count, sum: self.sum.load(Ordering::Relaxed) }
    }
}

impl Default for Histogram {
    /// Of requests.
    fn default() -> Self {
        Self::new(&bounds::REQUEST)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        let histogram = Histogram::default();
        histogram.observe(Duration::from_nanos(bounds::REQUEST[0]));
        histogram.observe(Duration::from_nanos(bounds::REQUEST[0] + 1));
        histogram.observe(Duration::from_secs(301));
        histogram.observe(Duration::MAX);
        let reading = histogram.read();
        assert_eq!((reading.within[0].1, reading.within[1].1, reading.within[17].1), (1, 2, 2));
        assert_eq!(reading.count, 4);
    }

    proptest! {
        #[test]
        fn buckets_agree_with_the_observations(took in proptest::collection::vec(0u64..400_000_000_000, 0..50)) {
            let histogram = Histogram::new(&bounds::MESSAGE);
            took.iter().for_each(|took| histogram.observe(Duration::from_nanos(*took)));
            let reading = histogram.read();
            prop_assert_eq!(reading.count, took.len() as u64);
            prop_assert_eq!(reading.sum, took.iter().sum::<u64>());
            for (bound, count) in reading.within {
                prop_assert_eq!(count, took.iter().filter(|took| **took <= bound).count() as u64);
            }
        }
    }
}
