use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, from 0 at the start of the process.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// At 0.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// So many more.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// How many so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
