//! Operations that complete even if their callers are cancelled.

use std::{
    any::Any,
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::runtime::Handle;
use tracing::Instrument;

use crate::Error;

/// An operation that completes even if its caller is cancelled. It runs in the task of its caller, and costs no task of
/// its own; if it is dropped before it has completed, a task runs the rest of it. Nothing happens before the first
/// poll.
#[must_use = "nothing happens before it is polled"]
pub struct Completion<T: Send + 'static>(Option<BoxFuture<'static, Result<T, Panicked>>>);

/// The panic of an operation: a bug, which the caller reports as an error.
#[derive(Clone, Debug, thiserror::Error)]
#[error("panicked with message {0:?}")]
pub struct Panicked(String);

impl<T: Send + 'static> Completion<T> {
    /// Wraps an operation. Its log lines belong to the caller's span, whatever task they come from.
    pub fn new(operation: impl Future<Output = T> + Send + 'static) -> Self {
        let operation = AssertUnwindSafe(operation.in_current_span()).catch_unwind();
        Self(Some(operation.map(|outcome| outcome.map_err(Panicked::from)).boxed()))
    }
}

impl<T: Send + 'static> Future for Completion<T> {
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(rest) = &mut self.0 else { panic!("polled after completion") };
        let polled = rest.poll_unpin(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Completion<T> {
    fn drop(&mut self) {
        if let (Some(rest), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(rest);
        }
    }
}

impl From<Box<dyn Any + Send>> for Panicked {
    fn from(payload: Box<dyn Any + Send>) -> Self {
        let message = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        Self(message.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default())
    }
}

impl From<Panicked> for Error {
    fn from(panic: Panicked) -> Self {
        Self::internal(format!("a bug: {panic}"))
    }
}

/// Runs an operation so that it completes even if its caller is cancelled.
pub(crate) async fn to_completion<T: Send + 'static>(
    operation: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    Completion::new(operation).await?
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn an_operation_completes_after_its_caller_was_cancelled() {
        let (go, wait) = oneshot::channel::<()>();
        let (done, mut result) = oneshot::channel();
        let mut operation = Completion::new(async {
            let _ = wait.await;
            let _ = done.send(7);
        });
        assert!((&mut operation).now_or_never().is_none());
        drop(operation);
        assert!(result.try_recv().is_err(), "it waits");
        go.send(()).expect("the operation waits");
        assert_eq!(result.await, Ok(7));
    }

    #[tokio::test]
    async fn a_panic_is_an_error() {
        let outcome = to_completion::<()>(async { panic!("on purpose") }).await;
        assert!(outcome.expect_err("the panic is returned").message.contains("on purpose"));
    }
}
