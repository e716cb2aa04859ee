use std::sync::atomic::{AtomicI64, Ordering};

/// A value that can increase and decrease.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Creates a gauge with the value 0.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    /// Adds a positive or negative number.
    pub fn add(&self, more: i64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Sets the value.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the current value.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds 1 until the returned guard is dropped, so that the gauge is decreased however the work ends.
    pub fn hold<G: AsRef<Gauge>>(gauge: G) -> GaugeGuard<G> {
        gauge.as_ref().add(1);
        GaugeGuard(gauge)
    }
}

impl AsRef<Gauge> for Gauge {
    fn as_ref(&self) -> &Gauge {
        self
    }
}

/// Decreases a [`Gauge`] by 1 when it is dropped.
#[derive(Debug)]
pub struct GaugeGuard<G: AsRef<Gauge>>(G);

impl<G: AsRef<Gauge>> Drop for GaugeGuard<G> {
    fn drop(&mut self) {
        self.0.as_ref().add(-1);
    }
}
