//! The state that the layer and the task share: what is recorded, and the queue between them.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use telemetry::{Counter, Gauge};
use tokio::sync::{mpsc, oneshot};

use crate::{Settings, proto::Span};

/// Maximum number of queued spans; each takes about a kilobyte.
pub const QUEUE: usize = 2048;

/// An entry of the queue.
pub(crate) enum Item {
    Span(Span),
    /// Notified when all spans before it have been sent or dropped.
    Flush(oneshot::Sender<()>),
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

/// The state of [`crate::Traces`].
pub(crate) struct Shared {
    pub(crate) on: AtomicBool,
    /// Traces are recorded if the last 63 bits of their id are below this value.
    pub(crate) threshold: AtomicU64,
    queue: Mutex<Option<mpsc::Sender<Item>>>,
    pub(crate) settings: Mutex<Option<Settings>>,
    /// Names of the crates whose spans are exported.
    ours: &'static [&'static str],
    pub(crate) metrics: Metrics,
}

impl Shared {
    /// Returns the state off.
    pub(crate) fn off(ours: &'static [&'static str]) -> Self {
        Self {
            on: AtomicBool::new(false),
            threshold: AtomicU64::new(0),
            queue: Mutex::new(None),
            settings: Mutex::new(None),
            ours,
            metrics: Metrics::default(),
        }
    }

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

    pub(crate) fn queue(&self) -> MutexGuard<'_, Option<mpsc::Sender<Item>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
