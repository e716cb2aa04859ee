//! The task that sends.

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
    traces::Shared,
};

/// Spans that may wait: about a kilobyte each.
pub const QUEUE: usize = 2048;

/// Most spans of one message.
const BATCH: usize = 512;
/// How long a span waits for others.
const LINGER: Duration = Duration::from_secs(2);
/// How long the collector may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses between tries of one message; after the last it is given up.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5), Duration::from_secs(15)];
const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

pub(crate) enum Item {
    Span(Span),
    /// To be told when all before it was sent or given up.
    Flush(oneshot::Sender<()>),
}

/// Runs until the queue's other end is gone and it is empty.
pub(crate) async fn run(shared: Arc<Shared>, endpoint: Endpoint, settings: Settings, mut queue: mpsc::Receiver<Item>) {
    let channel = endpoint.connect_timeout(PATIENCE).timeout(PATIENCE).connect_lazy();
    let mut collector = Collector { grpc: Grpc::new(channel), resource: resource(&settings), settings, away: false };
    loop {
        let (batch, flushed, more) = gather(&mut queue).await;
        if !batch.is_empty() {
            let count = batch.len();
            let sent = collector.send(batch).await;
            shared.figures.queued.add(-(count as i64));
            match sent {
                true => shared.figures.exported.add(count as u64),
                false => shared.figures.failed.add(count as u64),
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

/// A batch that is full, or old enough, or must go now; and whether there may be another.
async fn gather(queue: &mut mpsc::Receiver<Item>) -> (Vec<Span>, Option<oneshot::Sender<()>>, bool) {
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
    /// It did not answer last time, and the log has it.
    away: bool,
}

impl Collector {
    /// Whether the collector has them.
    async fn send(&mut self, spans: Vec<Span>) -> bool {
        let scope = InstrumentationScope { name: "pinion".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
        let resource_spans = vec![ResourceSpans { resource: Some(self.resource.clone()), scope_spans }];
        let request = ExportTraceServiceRequest { resource_spans };
        let mut pauses = PAUSES.iter();
        loop {
            let failure = match self.try_send(request.clone()).await {
                Ok(answer) => return self.told(&answer),
                Err(status) => status,
            };
            if !self.away {
                self.away = true;
                tracing::warn!(
                    endpoint = self.settings.endpoint,
                    "send spans: {failure}; they wait; what comes when the queue is full is dropped"
                );
            }
            match pauses.next().filter(|_| may_succeed_later(&failure)) {
                Some(pause) => sleep(*pause).await,
                None => return false,
            }
        }
    }

    async fn try_send(&mut self, request: ExportTraceServiceRequest) -> Result<ExportTraceServiceResponse, Status> {
        let ready = timeout(PATIENCE, self.grpc.ready()).await;
        ready
            .map_err(|_| Status::deadline_exceeded("no connection"))?
            .map_err(|error| Status::unavailable(told(&error)))?;
        let codec: ProstCodec<ExportTraceServiceRequest, ExportTraceServiceResponse> = ProstCodec::default();
        let sent = self.grpc.unary(Request::new(request), PathAndQuery::from_static(METHOD), codec);
        let answer = timeout(PATIENCE, sent).await.map_err(|_| Status::deadline_exceeded("no answer"))?;
        Ok(answer?.into_inner())
    }

    fn told(&mut self, answer: &ExportTraceServiceResponse) -> bool {
        if self.away {
            self.away = false;
            tracing::info!(endpoint = self.settings.endpoint, "spans are taken again");
        }
        if let Some(partial) = answer.partial_success.as_ref().filter(|partial| partial.rejected_spans > 0) {
            tracing::warn!(
                rejected = partial.rejected_spans,
                "the collector took not all spans: {}",
                partial.error_message
            );
        }
        true
    }
}

/// As the OTLP specification (1.9, Failures) says: what is retryable.
fn may_succeed_later(failure: &Status) -> bool {
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

/// An error with its causes, in one line.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

fn resource(settings: &Settings) -> Resource {
    let own = ("service.name".to_owned(), settings.service_name.clone());
    let all = [own].into_iter().chain(settings.resource.iter().cloned());
    Resource { attributes: all.map(|(key, value)| KeyValue::new(&key, Value::Text(value))).collect() }
}
