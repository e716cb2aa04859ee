//! CPU usage rate.

/// Minimum time between two samples for a rate, in nanoseconds: over shorter times the resolution of the kernel's clock
/// ticks shows.
const WINDOW: u64 = 900_000_000;

/// The sample from which the next rate is computed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    at: u64,
    used: u64,
    rate: Option<u64>,
}

impl Rate {
    /// Returns the CPU time in nanoseconds per second, from this sample and an earlier one at least [`WINDOW`] older.
    /// For the first sample it is the mean since `start`, when `used` was 0, so that every sample has a rate: kubelet
    /// computes the rate itself for a sample without one, and reports an error if it gets that sample twice. `None` for
    /// a first sample without elapsed time.
    pub(super) fn next(&mut self, at: u64, used: u64, start: u64) -> Option<u64> {
        if self.at == 0 {
            *self = Self { at, used, rate: mean(used, at.saturating_sub(start)) };
        } else if at < self.at {
            // The wall clock was set back.
            *self = Self { at, used, rate: self.rate };
        } else if at - self.at >= WINDOW {
            *self = Self { at, used, rate: mean(used.saturating_sub(self.used), at - self.at) };
        }
        self.rate
    }
}

fn mean(used: u64, passed: u64) -> Option<u64> {
    // Products of two 64-bit counters need more than 64 bits.
    let rate = (u128::from(used) * 1_000_000_000).checked_div(u128::from(passed))?;
    u64::try_from(rate).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_time_between_two_samples() {
        let mut rate = Rate::default();
        assert_eq!(rate.next(1_000_000_000, 50_000_000, 500_000_000), Some(100_000_000), "the mean since the start");
        assert_eq!(rate.next(1_500_000_000, 350_000_000, 0), Some(100_000_000), "too soon");
        assert_eq!(rate.next(3_000_000_000, 1_050_000_000, 0), Some(500_000_000));
        assert_eq!(
            rate.next(3_000_000_001, 1_900_000_005, 0),
            Some(500_000_000),
            "the last rate, until the next window"
        );
        assert_eq!(rate.next(5_000_000_000, 0, 0), Some(0), "a counter that was reset");
    }

    #[test]
    fn a_rate_is_reported_after_the_clock_was_set_back() {
        let mut rate = Rate::default();
        assert_eq!(rate.next(9_000_000_000, 0, 9_000_000_000), None, "no time has passed yet");
        assert_eq!(rate.next(10_000_000_000, 100_000_000, 0), Some(100_000_000));
        assert_eq!(rate.next(2_000_000_000, 200_000_000, 0), Some(100_000_000));
        assert_eq!(rate.next(3_000_000_000, 700_000_000, 0), Some(500_000_000));
    }
}
