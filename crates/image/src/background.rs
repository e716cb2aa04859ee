//! Handles of the threads that work in the background while a store is open.

use std::sync::mpsc::Sender;

/// Handle of a background thread, which wakes it, and ends it when it is dropped with the store.
pub(crate) struct BackgroundThread(Sender<()>);

impl BackgroundThread {
    /// Returns the handle of a thread that receives from the channel of `wake`.
    pub(crate) fn new(wake: Sender<()>) -> Self {
        Self(wake)
    }

    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        let _ = self.0.send(());
    }
}
