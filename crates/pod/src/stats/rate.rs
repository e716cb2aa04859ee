//! CPU time per second.

/// Shortest time between two samples that a rate is made of, nanoseconds: below, the kernel's clock ticks show.
const WINDOW: u64 = 900_000_000;

/// The sample that the next rate begins with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    at: u64,
    used: u64,
    rate: Option<u64>,
}

impl Rate {
    /// Nanoseconds of CPU per second, from this sample and one at least the window older; `None` without such one.
    pub(super) fn next(&mut self, at: u64, used: u64) -> Option<u64> {
        if self.at == 0 {
            *self = Self { at, used, rate: None };
            return None;
        }
        let passed = at.saturating_sub(self.at);
        if passed >= WINDOW {
            // Products of two 64-bit counters need more than 64 bits.
            let rate = u128::from(used.saturating_sub(self.used)) * 1_000_000_000 / u128::from(passed);
            *self = Self { at, used, rate: u64::try_from(rate).ok() };
        }
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_two_samples_and_time_between() {
        let mut rate = Rate::default();
        assert_eq!(rate.next(1_000_000_000, 5), None);
        assert_eq!(rate.next(1_500_000_000, 300_000_005), None, "too soon");
        assert_eq!(rate.next(3_000_000_000, 1_000_000_005), Some(500_000_000));
        assert_eq!(rate.next(3_000_000_001, 1_900_000_005), Some(500_000_000), "the last one, until the next window");
        assert_eq!(rate.next(5_000_000_000, 0), Some(0), "a counter that went back");
    }
}
