//! Progress of a pull.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::Digest;

/// Least time between two reports of one layer in one stage.
const INTERVAL: Duration = Duration::from_millis(50);

/// Progress of one layer.
#[derive(Clone, Debug)]
pub struct LayerProgress {
    /// Digest of the layer's blob.
    pub digest: String,
    /// Current stage.
    pub stage: Stage,
    /// Compressed bytes that passed this stage.
    pub done: u64,
    /// Compressed size.
    pub total: u64,
}

/// Stages of a layer, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Waiting for a free download slot.
    Waiting,
    /// Being downloaded. What was received is unpacked at the same time.
    Downloading,
    /// Downloaded completely, and still being unpacked.
    Unpacking,
    /// Unpacked and verified.
    Done,
    /// In the store before the pull.
    Exists,
}

/// A callback for the progress of layers, called on each change of stage, and at most every 50 ms per layer otherwise.
/// It must not block.
pub type ProgressCallback = Arc<dyn Fn(LayerProgress) + Send + Sync>;

/// The callbacks of one pull. A callback that is added later gets only later reports.
#[derive(Clone, Default)]
pub(crate) struct Listeners(Arc<Mutex<Vec<ProgressCallback>>>);

impl Listeners {
    pub(crate) fn add(&self, listener: ProgressCallback) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    /// Forwards all reports to the callbacks of `others`, too.
    pub(crate) fn forward_to(&self, others: &Self) {
        let others = others.clone();
        self.add(Arc::new(move |progress| others.notify(&progress)));
    }

    fn notify(&self, progress: &LayerProgress) {
        let listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for listener in listeners {
            listener(progress.clone());
        }
    }
}

/// Reports the progress of one layer.
#[derive(Clone)]
pub(crate) struct Meter {
    digest: Digest,
    total: u64,
    listeners: Listeners,
    last: Arc<Mutex<(Stage, Option<Instant>)>>,
}

impl Meter {
    pub(crate) fn new(digest: &Digest, total: u64, listeners: &Listeners) -> Self {
        let meter = Self {
            digest: digest.clone(),
            total,
            listeners: listeners.clone(),
            last: Arc::new(Mutex::new((Stage::Waiting, None))),
        };
        meter.send(Stage::Waiting, 0);
        meter
    }

    pub(crate) fn report(&self, stage: Stage, done: u64) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if stage < last.0 || (stage == last.0 && last.1.is_some_and(|at| at.elapsed() < INTERVAL)) {
            return;
        }
        *last = (stage, Some(Instant::now()));
        drop(last);
        self.send(stage, done);
    }

    /// Sends the last report: [`Stage::Done`] or [`Stage::Exists`].
    pub(crate) fn end(&self, stage: Stage) {
        self.report(stage, self.total);
    }

    fn send(&self, stage: Stage, done: u64) {
        self.listeners.notify(&LayerProgress { digest: self.digest.to_string(), stage, done, total: self.total });
    }
}
