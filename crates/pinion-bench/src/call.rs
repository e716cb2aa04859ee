//! Calls of engines, for a limited time.

use std::time::Duration;

use tonic::{Response, Status};

/// Makes a call.
///
/// # Errors
/// What the engine reported, or that it did not respond in time.
pub(crate) async fn limited<T>(
    name: &str,
    timeout: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, String> {
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(format!("{name}: {}", status.message())),
        Err(_) => Err(format!("{name}: no response in {} s", timeout.as_secs())),
    }
}
