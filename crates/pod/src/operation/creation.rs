//! The creation of an object in progress: no caller knows the object's id yet.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Whether the creation of an object, or its rollback, is in progress.
#[derive(Debug, Default)]
pub(crate) struct CreationState(Arc<AtomicBool>);

/// Guard of a creation in progress, held by the operation until it ends.
#[derive(Debug)]
pub(crate) struct CreationGuard(Arc<AtomicBool>);

impl CreationState {
    pub(crate) fn begin(&self) -> CreationGuard {
        self.0.store(true, Ordering::Release);
        CreationGuard(Arc::clone(&self.0))
    }

    pub(crate) fn is_in_progress(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for CreationGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
