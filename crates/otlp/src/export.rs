//! The task that sends spans to the collector.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use crate::{
    Settings,
    proto::{
        ExportTraceServiceRequest, ExportTraceServiceResponse, InstrumentationScope, KeyValue, Resource, ResourceSpans,
        ScopeSpans, Span, Value,
    },
    state::{Item, Shared},
};

/// Maximum number of spans per request.
const BATCH: usize = 512;
/// How long a span waits for others before it is sent.
const LINGER: Duration = Duration::from_secs(2);
/// Timeout of connections and requests.
const PATIENCE: Duration = Duration::from_secs(10);
/// Delays between the attempts to send a batch; it is dropped when the last attempt has failed.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(15)];
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Runs until the sender of the queue is dropped and the queue is empty.
pub(crate) async fn run(shared: Arc<Shared>, endpoint: Endpoint, settings: Settings, mut queue: mpsc::Receiver<Item>) {
    let channel = endpoint.connect_timeout(PATIENCE).timeout(PATIENCE).connect_lazy();
    let mut collector =
        Collector { grpc: Grpc::new(channel), resource: resource(&settings), settings, unreachable: false };
    loop {
        let (batch, flushed, more) = next_batch(&mut queue).await;
        if !batch.is_empty() {
            let count = batch.len();
            let sent = collector.send(batch).await;
            shared.metrics.queued.add(-(count as i64));
            match sent {
                true => shared.metrics.exported.add(count as u64),
                false => shared.metrics.failed.add(count as u64),
            }
        }
        if let Some(flushed) = flushed {
            let _ = flushed.send(());
        }
        if !more {
            return;
        }
    }
}

/// Returns the next batch, which is full, old enough, or must be flushed; and whether the queue is still open.
async fn next_batch(queue: &mut mpsc::Receiver<Item>) -> (Vec<Span>, Option<oneshot::Sender<()>>, bool) {
    let mut batch = Vec::new();
    match queue.recv().await {
        Some(Item::Span(span)) => batch.push(span),
        Some(Item::Flush(flushed)) => return (batch, Some(flushed), true),
        None => return (batch, None, false),
    }
    let filled = timeout(LINGER, async {
        while batch.len() < BATCH {
            match queue.recv().await {
                Some(Item::Span(span)) => batch.push(span),
                Some(Item::Flush(flushed)) => return (Some(flushed), true),
                None => return (None, false),
            }
        }
        (None, true)
    })
    .await;
    let (flushed, more) = filled.unwrap_or((None, true));
    (batch, flushed, more)
}

struct Collector {
    grpc: Grpc<Channel>,
    resource: Resource,
    settings: Settings,
    /// Whether the last attempt failed; the failure has been logged.
    unreachable: bool,
}

impl Collector {
    /// Sends spans; returns whether the collector has received them.
    async fn send(&mut self, spans: Vec<Span>) -> bool {
        let scope = InstrumentationScope { name: "pinion".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
        let resource_spans = vec![ResourceSpans { resource: Some(self.resource.clone()), scope_spans }];
        let request = ExportTraceServiceRequest { resource_spans };
        let mut pauses = PAUSES.iter();
        loop {
            let failure = match self.try_send(request.clone()).await {
                Ok(response) => return self.record_response(&response),
                Err(status) => status,
            };
            if !self.unreachable {
                self.unreachable = true;
                tracing::warn!(
                    endpoint = self.settings.endpoint,
                    "send spans: {failure}; retrying; spans are dropped when the queue is full"
                );
            }
            match pauses.next().filter(|_| is_retryable(&failure)) {
                Some(pause) => sleep(*pause).await,
                None => return false,
            }
        }
    }

    async fn try_send(&mut self, request: ExportTraceServiceRequest) -> Result<ExportTraceServiceResponse, Status> {
        let ready = timeout(PATIENCE, self.grpc.ready()).await;
        ready
            .map_err(|_| Status::deadline_exceeded("no connection"))?
            .map_err(|error| Status::unavailable(with_causes(&error)))?;
        let codec: ProstCodec<ExportTraceServiceRequest, ExportTraceServiceResponse> = ProstCodec::default();
        let sent = self.grpc.unary(Request::new(request), PathAndQuery::from_static(METHOD), codec);
        let response = timeout(PATIENCE, sent).await.map_err(|_| Status::deadline_exceeded("no response"))?;
        Ok(response?.into_inner())
    }

    fn record_response(&mut self, response: &ExportTraceServiceResponse) -> bool {
        if self.unreachable {
            self.unreachable = false;
            tracing::info!(endpoint = self.settings.endpoint, "the collector accepts spans again");
        }
        if let Some(partial) = response.partial_success.as_ref().filter(|partial| partial.rejected_spans > 0) {
            tracing::warn!(
                rejected = partial.rejected_spans,
                "the collector rejected some spans: {}",
                partial.error_message
            );
        }
        true
    }
}

/// Reports whether a failure is retryable according to the OTLP specification (1.9, Failures).
fn is_retryable(failure: &Status) -> bool {
    matches!(
        failure.code(),
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
            | Code::ResourceExhausted
    )
}

/// Formats an error with its causes on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

fn resource(settings: &Settings) -> Resource {
    let service_name = ("service.name".to_owned(), settings.service_name.clone());
    let all = [service_name].into_iter().chain(settings.resource.iter().cloned());
    Resource { attributes: all.map(|(key, value)| KeyValue::new(&key, Value::Text(value))).collect() }
}
