//! Operations on networks that people create by name ([`crate::named`]).

mod connect;
mod create;
mod create_overlay;
mod inspect;
mod join;
mod remove;
mod subnets;

use std::{io, sync::Arc, time::Duration};

use tokio::time::timeout;

use crate::{Error, network::Inner};

pub use inspect::NetworkEndpoint;

/// Longest time that a caller waits for a change, which writes to a disk that may hang. The change continues.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

impl Inner {
    /// Creates or removes a network, one at a time, on a thread for blocking work.
    async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        operation: &'static str,
        network: &str,
        work: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let failed = |cause: io::Error| Error::kernel(operation, format!("network {network}"), cause);
        let inner = Arc::clone(self);
        let change = async move {
            let changes = Arc::clone(&inner.named.changes).lock_owned().await;
            let work = move || {
                let _changes = changes;
                work(&inner)
            };
            offload::blocking(work).await
        };
        match timeout(CHANGE_TIMEOUT, change).await {
            Ok(done) => done.map_err(|e| failed(io::Error::other(e)))?,
            Err(_) => Err(failed(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("still running after {} s; see whether the disk of data_dir hangs", CHANGE_TIMEOUT.as_secs()),
            ))),
        }
    }
}
