//! Output of a container that its log lacks, as the monitor reports it.

use std::sync::atomic::{AtomicU64, Ordering};

/// The total that the monitor reported last.
#[derive(Debug, Default)]
pub(crate) struct LogLoss(AtomicU64);

impl LogLoss {
    /// Updates the number of bytes lost so far, which every report repeats, and returns how many of them are new.
    pub(crate) fn update(&self, total: u64) -> u64 {
        total.saturating_sub(self.0.fetch_max(total, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lost_byte_is_counted_once_however_often_the_total_is_reported() {
        let loss = LogLoss::default();
        assert_eq!([0, 4096, 4096, 12288, 0, 12289].map(|total| loss.update(total)), [0, 4096, 0, 8192, 0, 1]);
    }
}
