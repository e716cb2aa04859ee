//! How an RPC is answered: every one passes here, and here alone it is counted, timed, traced and told in the log.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::Stream;
use tonic::{Request, Response, Status};
use tracing::{Instrument, Span};

use crate::{Daemon, Failure, about::Names, call::Call, rpc::Rpc};

/// What gRPC wants of a method.
pub(crate) type Answer<T> = Result<Response<T>, Status>;
/// What an RPC's own function gives.
pub(crate) type Outcome<T> = Result<T, Failure>;
/// What an RPC with many answers gives. It ends when its client goes.
pub(crate) type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// What every RPC works on.
pub(crate) struct State {
    pub(crate) engine: pod::Engine,
    pub(crate) rows: crate::rows::Encoded,
    pub(crate) streaming: crate::Streaming,
    /// Containers with attached clients.
    pub(crate) attached: crate::attached::Attached,
    /// The program around the engine.
    pub(crate) daemon: Arc<dyn Daemon>,
}

pub(crate) type Shared = Arc<State>;

/// Answers a request that changes nothing, or whose work is worthless once its client hung up: it ends with the client.
pub(crate) async fn reading<M: Names, T, W: Future<Output = Outcome<T>>>(
    rpc: Rpc,
    state: &Shared,
    request: Request<M>,
    work: impl FnOnce(Shared, M) -> W,
) -> Answer<T> {
    let (metadata, _, message) = request.into_parts();
    let call = Call::begin(rpc, &metadata, &message);
    let outcome = work(state.clone(), message).instrument(call.span().clone()).await;
    told(call, state, outcome)
}

/// Answers a request that changes something: it runs to its end, whether or not its client still listens.
pub(crate) async fn changing<M: Names, T: Send + 'static, W: Future<Output = Outcome<T>> + Send + 'static>(
    rpc: Rpc,
    state: &Shared,
    request: Request<M>,
    work: impl FnOnce(Shared, M) -> W,
) -> Answer<T> {
    let (metadata, _, message) = request.into_parts();
    let call = Call::begin(rpc, &metadata, &message);
    let (span, state) = (call.span().clone(), state.clone());
    let work = work(state.clone(), message);
    // It is told when it ends, not when its client left.
    let done = tokio::spawn(async move { told(call, &state, work.await) }.instrument(span)).await;
    done.unwrap_or_else(|panic| {
        Err(Failure::internal(format!("{}: the daemon failed at it: {panic}", rpc.method())).into())
    })
}

/// Answers with a stream. The request ends with it: with its first error, with its last message, or with its client.
pub(crate) async fn streaming<M: Names, T, W: Future<Output = Outcome<Streamed<T>>>>(
    rpc: Rpc,
    state: &Shared,
    request: Request<M>,
    work: impl FnOnce(Shared, M) -> W,
) -> Answer<Streamed<T>>
where
    T: 'static,
{
    let (metadata, _, message) = request.into_parts();
    let call = Call::begin(rpc, &metadata, &message);
    match work(state.clone(), message).instrument(call.span().clone()).await {
        Ok(stream) => Ok(Response::new(Box::pin(Told { stream, call: Some(call), state: state.clone() }))),
        Err(failure) => told(call, state, Err(failure)),
    }
}

fn told<T>(call: Call, state: &State, outcome: Outcome<T>) -> Answer<T> {
    match outcome {
        Ok(answer) => {
            call.end(&state.engine, None);
            Ok(Response::new(answer))
        }
        Err(failure) => {
            let status = Status::from(failure);
            call.end(&state.engine, Some((&status).into()));
            Err(status)
        }
    }
}

/// A stream that is a request's answer.
struct Told<T> {
    stream: Streamed<T>,
    call: Option<Call>,
    state: Shared,
}

impl<T> Stream for Told<T> {
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

/// For RPCs that must succeed when what they end is gone already.
pub(crate) fn gone_is_fine(outcome: Result<(), pod::Error>) -> Outcome<()> {
    match outcome.map_err(Failure::from) {
        Err(failure) if failure.is_not_found() => Ok(()),
        other => other,
    }
}
