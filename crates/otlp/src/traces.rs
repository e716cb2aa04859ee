//! The switch: where spans go, if anywhere.

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
    layer::{Spans, WhileOn},
    proto::Span,
};

/// Where spans go.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `http://host:port` of a collector that speaks OTLP over gRPC (by convention port 4317).
    pub endpoint: String,
    /// Share of the traces that are recorded where the client did not decide, 0 to 1.
    pub sample_ratio: f64,
    /// `service.name` of the resource.
    pub service_name: String,
    /// More attributes of the resource, by name: `service.version`, `host.name`.
    pub resource: Vec<(String, String)>,
}

/// Why spans cannot go there.
#[derive(Debug, thiserror::Error)]
#[error("traces to {endpoint}: {why}")]
pub struct SettingsError {
    endpoint: String,
    why: String,
}

/// What became of spans since the program started.
#[derive(Debug, Default)]
pub struct Figures {
    /// The collector has them.
    pub exported: Counter,
    /// The queue was full: the collector is away or too slow.
    pub dropped: Counter,
    /// Sent as often as is tried, and not taken.
    pub failed: Counter,
    /// They wait.
    pub queued: Gauge,
}

/// Spans of this process. Clones are one.
#[derive(Clone)]
pub struct Traces(Arc<Shared>);

pub(crate) struct Shared {
    on: AtomicBool,
    /// Traces whose id's last 63 bits are below this are recorded.
    threshold: AtomicU64,
    queue: Mutex<Option<mpsc::Sender<Item>>>,
    settings: Mutex<Option<Settings>>,
    /// First parts of targets.
    ours: &'static [&'static str],
    pub(crate) figures: Figures,
}

impl Traces {
    /// Off. `ours` are the crates whose spans are exported.
    #[must_use]
    pub fn off(ours: &'static [&'static str]) -> Self {
        Self(Arc::new(Shared {
            on: AtomicBool::new(false),
            threshold: AtomicU64::new(0),
            queue: Mutex::new(None),
            settings: Mutex::new(None),
            ours,
            figures: Figures::default(),
        }))
    }

    /// For the subscriber, once.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        Spans(Arc::clone(&self.0)).with_filter(WhileOn(Arc::clone(&self.0)))
    }

    /// From now on spans go here, or nowhere. What waits for the collector before goes there still. Must be called
    /// within a runtime of tokio; the collector need not be there.
    ///
    /// # Errors
    /// When the endpoint is not a URL that can be asked, or the ratio is none; then nothing changes.
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
        let wrong = |why: String| SettingsError { endpoint: settings.endpoint.clone(), why };
        if !(0.0..=1.0).contains(&settings.sample_ratio) {
            return Err(wrong(format!("{} is not a share between 0 and 1", settings.sample_ratio)));
        }
        if !settings.endpoint.starts_with("http://") {
            return Err(wrong(
                "only http:// is spoken; put a collector on this node, or a tunnel before it".to_owned(),
            ));
        }
        let endpoint = Endpoint::from_shared(settings.endpoint.clone()).map_err(|e| wrong(e.to_string()))?;
        let (sender, receiver) = mpsc::channel(export::QUEUE);
        // The top is kept below 2^63, of which every id is less: all of them.
        shared.threshold.store((settings.sample_ratio * (1u64 << 63) as f64) as u64, Ordering::Relaxed);
        shared.queue().replace(sender);
        current.replace(settings.clone());
        tokio::spawn(export::run(Arc::clone(shared), endpoint, settings, receiver));
        shared.on.store(true, Ordering::Release);
        rebuild_interest_cache();
        Ok(())
    }

    /// Waits until everything that is queued now was sent or given up, at most so long.
    pub async fn flush(&self, longest: Duration) {
        let (done, wait) = oneshot::channel();
        let queue = self.0.queue().clone();
        let flushed = async {
            if let Some(queue) = queue
                && queue.send(Item::Flush(done)).await.is_ok()
            {
                // A sender that is dropped says the same.
                let _ = wait.await;
            }
        };
        let _ = tokio::time::timeout(longest, flushed).await;
    }

    /// What became of spans.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.0.figures
    }
}

impl Shared {
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    pub(crate) fn is_ours(&self, target: &str) -> bool {
        self.ours.contains(&target.split("::").next().unwrap_or_default())
    }

    /// By the trace's id alone (the last 8 bytes are random in every scheme), so that services agree.
    pub(crate) fn samples(&self, trace: [u8; 16]) -> bool {
        let [.., a, b, c, d, e, f, g, h] = trace;
        u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1 < self.threshold.load(Ordering::Relaxed)
    }

    pub(crate) fn finished(&self, span: Span) {
        let sent = match &*self.queue() {
            Some(queue) => queue.try_send(Item::Span(span)).is_ok(),
            // It was turned off meanwhile: nobody wants it.
            None => return,
        };
        match sent {
            true => self.figures.queued.add(1),
            false => self.figures.dropped.add(1),
        }
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Option<mpsc::Sender<Item>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
