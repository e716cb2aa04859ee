//! Handles of the threads that work in the background while a store is open.

use std::sync::mpsc::SyncSender;

/// Handle of a background thread, which wakes it, and ends it when it is dropped with the store.
pub(crate) struct BackgroundThread(SyncSender<()>);

impl BackgroundThread {
    /// Returns the handle of a thread that receives from the channel of `wake`.
    pub(crate) fn new(wake: SyncSender<()>) -> Self {
        Self(wake)
    }

    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        // A full channel holds a wake that the thread has not seen yet.
        let _ = self.0.try_send(());
    }
}
