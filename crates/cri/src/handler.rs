//! Common handling of all RPCs: each one is counted, timed, traced and logged here, and only here.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::Stream;
use pod::Completion;
use tonic::{Request, Response, Status};
use tracing::{Instrument, Span};

use crate::{Daemon, Failure, call::Call, rpc::Rpc, subject::HasSubject};

/// The result of a gRPC method.
pub(crate) type RpcResult<T> = Result<Response<T>, Status>;
/// The result of an RPC's handler.
pub(crate) type Outcome<T> = Result<T, Failure>;
/// The messages of an RPC that responds with a stream. It ends when the client disconnects.
pub(crate) type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// State that all RPC handlers share.
pub(crate) struct State {
    pub(crate) engine: pod::Engine,
    pub(crate) rows: Arc<crate::rows::RowCaches>,
    pub(crate) streaming: crate::Streaming,
    /// The program that runs the engine.
    pub(crate) daemon: Arc<dyn Daemon>,
}

/// A reference to the shared state.
pub(crate) type Shared = Arc<State>;

/// Handles a request that changes nothing, or whose work is useless once the client has disconnected: it is cancelled
/// when the client disconnects.
pub(crate) async fn handle_cancellable<M: HasSubject, T, W: Future<Output = Outcome<T>>>(
    rpc: Rpc,
    state: &Shared,
    request: Request<M>,
    work: impl FnOnce(Shared, M) -> W,
) -> RpcResult<T> {
    let (metadata, _, message) = request.into_parts();
    let call = Call::begin(rpc, &metadata, &message);
    let outcome = work(state.clone(), message).instrument(call.span().clone()).await;
    finish(call, state, outcome)
}

/// Handles a request that changes something: it runs to completion even if the client disconnects.
pub(crate) async fn handle_to_completion<
    M: HasSubject,
    T: Send + 'static,
    W: Future<Output = Outcome<T>> + Send + 'static,
>(
    rpc: Rpc,
    state: &Shared,
    request: Request<M>,
    work: impl FnOnce(Shared, M) -> W,
) -> RpcResult<T> {
    let (metadata, _, message) = request.into_parts();
    let call = Call::begin(rpc, &metadata, &message);
    let (span, state) = (call.span().clone(), state.clone());
    let work = work(state.clone(), message);
    // It is logged when it ends, not when the client disconnects.
    let finished = Completion::new(async move { finish(call, &state, work.await) }.instrument(span)).await;
    finished.unwrap_or_else(|panic| {
        Err(Failure::internal(format!("{}: the daemon panicked; this is a bug: {panic}", rpc.method())).into())
    })
}

/// Handles a request that responds with a stream. The request ends with the stream: with its first error, after its
/// last message, or when the client disconnects.
pub(crate) async fn handle_stream<M: HasSubject, T, W: Future<Output = Outcome<Streamed<T>>>>(
    rpc: Rpc,
    state: &Shared,
    request: Request<M>,
    work: impl FnOnce(Shared, M) -> W,
) -> RpcResult<Streamed<T>>
where
    T: 'static,
{
    let (metadata, _, message) = request.into_parts();
    let call = Call::begin(rpc, &metadata, &message);
    match work(state.clone(), message).instrument(call.span().clone()).await {
        Ok(stream) => Ok(Response::new(Box::pin(TracedStream { stream, call: Some(call), state: state.clone() }))),
        Err(failure) => finish(call, state, Err(failure)),
    }
}

fn finish<T>(call: Call, state: &State, outcome: Outcome<T>) -> RpcResult<T> {
    match outcome {
        Ok(response) => {
            call.end(&state.engine, None);
            Ok(Response::new(response))
        }
        Err(failure) => {
            let status = Status::from(failure);
            call.end(&state.engine, Some((&status).into()));
            Err(status)
        }
    }
}

/// A response stream, which ends its [`Call`] when it ends.
struct TracedStream<T> {
    stream: Streamed<T>,
    call: Option<Call>,
    state: Shared,
}

impl<T> Stream for TracedStream<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let span = self.call.as_ref().map_or_else(Span::none, |call| call.span().clone());
        let polled = span.in_scope(|| self.stream.as_mut().poll_next(context));
        let end = match &polled {
            Poll::Ready(Some(Err(status))) => Some(status.into()),
            Poll::Ready(None) => None,
            Poll::Ready(Some(Ok(_))) | Poll::Pending => return polled,
        };
        let engine = self.state.engine.clone();
        if let Some(call) = self.call.take() {
            call.end(&engine, end);
        }
        polled
    }
}

/// Converts a missing object to success, for RPCs that stop or remove objects.
pub(crate) fn ignore_not_found(outcome: Result<(), pod::Error>) -> Outcome<()> {
    match outcome.map_err(Failure::from) {
        Err(failure) if failure.is_not_found() => Ok(()),
        other => other,
    }
}
