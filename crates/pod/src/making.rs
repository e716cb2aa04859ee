//! That an operation makes an object: no caller knows its id yet.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Whether an object is being made, or undone since it was not made.
#[derive(Debug, Default)]
pub(crate) struct Making(Arc<AtomicBool>);

/// The operation, until it ends.
#[derive(Debug)]
pub(crate) struct Maker(Arc<AtomicBool>);

impl Making {
    pub(crate) fn begin(&self) -> Maker {
        self.0.store(true, Ordering::Release);
        Maker(Arc::clone(&self.0))
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
