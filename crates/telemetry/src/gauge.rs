use std::sync::atomic::{AtomicI64, Ordering};

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// At 0.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    /// So many more, or fewer.
    pub fn add(&self, more: i64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// From now on this.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// How many.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// One more, until what is returned is dropped: however the work ends, it is counted down.
    pub fn hold<G: AsRef<Gauge>>(gauge: G) -> Held<G> {
        gauge.as_ref().add(1);
        Held(gauge)
    }
}

impl AsRef<Gauge> for Gauge {
    fn as_ref(&self) -> &Gauge {
        self
    }
}

/// One that counts in a [`Gauge`] as long as it lives.
#[derive(Debug)]
pub struct Held<G: AsRef<Gauge>>(G);

impl<G: AsRef<Gauge>> Drop for Held<G> {
    fn drop(&mut self) {
        self.0.as_ref().add(-1);
    }
}
