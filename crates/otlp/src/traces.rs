//! Turns export on and off, and selects the collector.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};
use tonic::transport::Endpoint;
use tracing::{Subscriber, callsite::rebuild_interest_cache};
use tracing_subscriber::{Layer, registry::LookupSpan};

use crate::{
    Metrics, QUEUE, Settings, SettingsError, export,
    layer::{ExportFilter, SpanLayer},
    state::{Item, Shared},
};

/// The export of this process's spans. Clones share their state.
#[derive(Clone)]
pub struct Traces(Arc<Shared>);

impl Traces {
    /// Creates the export in the state off. `ours` are the names of the crates whose spans are exported.
    #[must_use]
    pub fn off(ours: &'static [&'static str]) -> Self {
        Self(Arc::new(Shared::off(ours)))
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
        let (sender, receiver) = mpsc::channel(QUEUE);
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
