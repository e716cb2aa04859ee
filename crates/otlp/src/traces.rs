//! Turns export on and off, and selects the collector.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use telemetry::{Counter, Gauge};
use tokio::sync::{mpsc, oneshot};
use tonic::transport::Endpoint;
use tracing::{Subscriber, callsite::rebuild_interest_cache};
use tracing_subscriber::{Layer, registry::LookupSpan};

use crate::{
    export::{self, Item},
    layer::{ExportFilter, SpanLayer},
    proto::Span,
};

/// Settings of the export.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// URL `http://host:port` of a collector that accepts OTLP over gRPC (by convention port 4317).
    pub endpoint: String,
    /// Share of traces that are recorded if the client did not decide, from 0 to 1.
    pub sample_ratio: f64,
    /// Resource attribute `service.name`.
    pub service_name: String,
    /// Additional resource attributes: `service.version`, `host.name`.
    pub resource: Vec<(String, String)>,
}

/// The error of invalid settings.
#[derive(Debug, thiserror::Error)]
#[error("traces to {endpoint}: {reason}")]
pub struct SettingsError {
    endpoint: String,
    reason: String,
}

/// Counters of spans since the program started.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Spans that the collector received.
    pub exported: Counter,
    /// Spans that were dropped because the queue was full: the collector is unreachable or too slow.
    pub dropped: Counter,
    /// Spans that were dropped after all attempts to send them failed.
    pub failed: Counter,
    /// Spans in the queue.
    pub queued: Gauge,
}

/// The export of this process's spans. Clones share their state.
#[derive(Clone)]
pub struct Traces(Arc<Shared>);

pub(crate) struct Shared {
    on: AtomicBool,
    /// Traces are recorded if the last 63 bits of their id are below this value.
    threshold: AtomicU64,
    queue: Mutex<Option<mpsc::Sender<Item>>>,
    settings: Mutex<Option<Settings>>,
    /// Names of the crates whose spans are exported.
    ours: &'static [&'static str],
    pub(crate) metrics: Metrics,
}

impl Traces {
    /// Creates the export in the state off. `ours` are the names of the crates whose spans are exported.
    #[must_use]
    pub fn off(ours: &'static [&'static str]) -> Self {
        Self(Arc::new(Shared {
            on: AtomicBool::new(false),
            threshold: AtomicU64::new(0),
            queue: Mutex::new(None),
            settings: Mutex::new(None),
            ours,
            metrics: Metrics::default(),
        }))
    }

    /// Returns the layer for the subscriber. Call this once.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        SpanLayer(Arc::clone(&self.0)).with_filter(ExportFilter(Arc::clone(&self.0)))
    }

    /// Changes the settings; `None` turns export off. Spans in the queue are still sent to the previous collector. Must
    /// be called within a tokio runtime. The collector need not be reachable.
    ///
    /// # Errors
    /// When the endpoint is not a valid URL, or the ratio is not between 0 and 1; then nothing changes.
    pub fn set(&self, settings: Option<Settings>) -> Result<(), SettingsError> {
        let shared = &self.0;
        let mut current = shared.settings.lock().unwrap_or_else(PoisonError::into_inner);
        if *current == settings {
            return Ok(());
        }
        let Some(settings) = settings else {
            current.take();
            shared.on.store(false, Ordering::Release);
            shared.queue().take();
            rebuild_interest_cache();
            return Ok(());
        };
        let invalid = |reason: String| SettingsError { endpoint: settings.endpoint.clone(), reason };
        if !(0.0..=1.0).contains(&settings.sample_ratio) {
            return Err(invalid(format!("{} is not a ratio between 0 and 1", settings.sample_ratio)));
        }
        if !settings.endpoint.starts_with("http://") {
            return Err(invalid("only http:// is supported; use a collector on this node, or a tunnel".to_owned()));
        }
        let endpoint = Endpoint::from_shared(settings.endpoint.clone()).map_err(|e| invalid(e.to_string()))?;
        let (sender, receiver) = mpsc::channel(export::QUEUE);
        // With a ratio of 1 the threshold is 2^63, which is greater than every id.
        shared.threshold.store((settings.sample_ratio * (1u64 << 63) as f64) as u64, Ordering::Relaxed);
        shared.queue().replace(sender);
        current.replace(settings.clone());
        tokio::spawn(export::run(Arc::clone(shared), endpoint, settings, receiver));
        shared.on.store(true, Ordering::Release);
        rebuild_interest_cache();
        Ok(())
    }

    /// Waits until all spans that are queued now have been sent or dropped, but at most for the given time.
    pub async fn flush(&self, limit: Duration) {
        let (done, wait) = oneshot::channel();
        let queue = self.0.queue().clone();
        let flushed = async {
            if let Some(queue) = queue
                && queue.send(Item::Flush(done)).await.is_ok()
            {
                // An error means that the task dropped the sender, so the queue has been processed too.
                let _ = wait.await;
            }
        };
        let _ = tokio::time::timeout(limit, flushed).await;
    }

    /// Returns the counters.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }
}

impl Shared {
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    pub(crate) fn is_ours(&self, target: &str) -> bool {
        self.ours.contains(&target.split("::").next().unwrap_or_default())
    }

    /// Reports whether a trace is sampled. Depends only on its id, whose last 8 bytes are random in every scheme, so
    /// that services agree.
    pub(crate) fn samples(&self, trace: [u8; 16]) -> bool {
        let [.., a, b, c, d, e, f, g, h] = trace;
        u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1 < self.threshold.load(Ordering::Relaxed)
    }

    pub(crate) fn finished(&self, span: Span) {
        let sent = match &*self.queue() {
            Some(queue) => queue.try_send(Item::Span(span)).is_ok(),
            // Export was turned off in the meantime.
            None => return,
        };
        match sent {
            true => self.metrics.queued.add(1),
            false => self.metrics.dropped.add(1),
        }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Option<mpsc::Sender<Item>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
