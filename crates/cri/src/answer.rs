use std::{future::Future, pin::Pin, sync::Arc, time::Instant};

use futures_util::Stream;
use tonic::{Response, Status};

use crate::{Failure, status::Rates};

/// What gRPC wants of a method.
pub(crate) type Answer<T> = Result<Response<T>, Status>;
/// What an RPC's own function gives.
pub(crate) type Outcome<T> = Result<T, Failure>;
/// What an RPC with many answers gives. It ends when its client goes.
pub(crate) type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// What every RPC works on.
pub(crate) struct State {
    pub(crate) engine: pod::Engine,
    pub(crate) rates: Rates,
    /// What the program around the engine tells of itself.
    pub(crate) daemon: serde_json::Value,
}

/// Answers a request that changes nothing, or whose work is worthless once its client hung up: it ends with the client.
pub(crate) async fn reading<T>(rpc: &'static str, work: impl Future<Output = Outcome<T>>) -> Answer<T> {
    let began = Instant::now();
    told(rpc, began, work.await)
}

/// Answers a request that changes something: it runs to its end, whether or not its client still listens.
pub(crate) async fn changing<T: Send + 'static>(
    rpc: &'static str,
    work: impl Future<Output = Outcome<T>> + Send + 'static,
) -> Answer<T> {
    let began = Instant::now();
    let done = tokio::spawn(work).await;
    let outcome =
        done.unwrap_or_else(|panic| Err(Failure::internal(format!("{rpc}: the daemon failed at it: {panic}"))));
    told(rpc, began, outcome)
}

/// Writes the outcome into the daemon's log: this is the outermost place that knows both request and result.
pub(crate) fn told<T>(rpc: &'static str, began: Instant, outcome: Outcome<T>) -> Answer<T> {
    let ms = (began.elapsed().as_secs_f64() * 1e6).round() / 1e3;
    match outcome {
        Ok(answer) => {
            tracing::debug!(rpc, ms, "answered");
            Ok(Response::new(answer))
        }
        Err(failure) => {
            if failure.is_ours() {
                tracing::warn!(rpc, ms, "{failure}");
            } else {
                tracing::info!(rpc, ms, "{failure}");
            }
            Err(failure.into())
        }
    }
}

/// For RPCs that must succeed when what they end is gone already.
pub(crate) fn gone_is_fine(outcome: Result<(), pod::Error>) -> Outcome<()> {
    match outcome.map_err(Failure::from) {
        Err(failure) if failure.is_not_found() => Ok(()),
        other => other,
    }
}

pub(crate) type Shared = Arc<State>;
