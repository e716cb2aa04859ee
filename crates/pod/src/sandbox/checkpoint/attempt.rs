//! The files of one checkpoint. Writing them cannot be interrupted, so that it may outlive the request: they are removed when the write
//! in progress has ended.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{Error, operation::blocking, sandbox::saved_pod::Output};

/// The directory of a checkpoint that is being written. `None` once it was abandoned.
#[derive(Clone)]
pub(super) struct Attempt(Arc<Mutex<Option<Output>>>);

impl Attempt {
    pub(super) fn new(output: Output) -> Self {
        Self(Arc::new(Mutex::new(Some(output))))
    }

    /// Writes files.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Output) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let attempt = self.clone();
        let write = move || {
            let output = attempt.0.lock().unwrap_or_else(PoisonError::into_inner);
            let output = output.as_ref().ok_or_else(|| Error::unavailable("the checkpoint was abandoned"))?;
            syscall::scheduling::with_default_nice(|| work(output))
        };
        blocking(write).await
    }

    /// Abandons the checkpoint and removes its files. After `timeout`, that continues in the background.
    pub(super) async fn remove(&self, timeout: Duration) -> Result<(), Error> {
        let attempt = self.clone();
        let remove = blocking(move || {
            let output = attempt.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            output.map_or(Ok(()), |output| output.remove_all())
        });
        let removed = tokio::time::timeout(timeout, remove).await;
        removed.unwrap_or_else(|_| Err(Error::unavailable("its files cannot be removed yet: a disk does not answer")))
    }
}
