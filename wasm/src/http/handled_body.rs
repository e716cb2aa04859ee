//! The body of a response, which ends its handler if the client disconnects before it has all of the response.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::{Response, StatusCode, body::Bytes, header::CONTENT_LENGTH};
use tokio::task::JoinHandle;
use wasmtime::Result;
use wasmtime_wasi_http::{Error, p2::body::HyperOutgoingBody};

/// The task in which the instance of a request runs. It is cancelled when this is dropped: at its next wait, because
/// compiled code cannot be interrupted.
pub(super) struct Handler {
    task: JoinHandle<Result<()>>,
    is_detached: bool,
}

impl Handler {
    /// Starts the task.
    pub(super) fn spawn(work: impl Future<Output = Result<()>> + Send + 'static) -> Self {
        Self { task: tokio::spawn(work), is_detached: false }
    }

    /// Waits until it has ended.
    pub(super) async fn join(mut self) -> Result<()> {
        (&mut self.task).await?
    }

    fn detach(mut self) {
        self.is_detached = true;
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        if !self.is_detached {
            self.task.abort();
        }
    }
}

/// A body with the handler that writes it.
pub(super) struct HandledBody {
    body: HyperOutgoingBody,
    /// `None`: all of the response was taken, and the handler continues to its own end.
    handler: Option<Handler>,
    /// Bytes that the response still has by its `Content-Length`.
    rest: Option<u64>,
}

impl HandledBody {
    /// Ties the handler to the response. `is_head`: the method is `HEAD`, so the body is not sent.
    pub(super) fn attach(
        response: Response<HyperOutgoingBody>,
        handler: Handler,
        is_head: bool,
    ) -> Response<HyperOutgoingBody> {
        let status = response.status();
        let has_body = !is_head && status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED;
        let length = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        response.map(|body| {
            let mut handled = Self { body, handler: Some(handler), rest: length };
            if !has_body || length == Some(0) || handled.body.is_end_stream() {
                handled.complete();
            }
            handled.boxed_unsync()
        })
    }

    fn complete(&mut self) {
        if let Some(handler) = self.handler.take() {
            handler.detach();
        }
    }
}

impl Body for HandledBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(None) => self.complete(),
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                self.rest = self.rest.map(|rest| rest.saturating_sub(length));
                // hyper drops the body then, without another poll.
                if self.rest == Some(0) || frame.is_trailers() {
                    self.complete();
                }
            }
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
