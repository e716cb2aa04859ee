//! Blocking work: files, mounts, namespaces.

use crate::Error;

/// Runs blocking work off the workers of the async runtime.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let span = tracing::Span::current();
    let outcome = offload::blocking(move || span.in_scope(work)).await;
    outcome.unwrap_or_else(|e| Err(Error::internal(format!("a bug: {e}"))))
}
