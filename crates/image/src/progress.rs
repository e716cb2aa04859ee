//! What a pull tells while it runs.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::Digest;

/// Least time between two reports of one layer in one stage.
const INTERVAL: Duration = Duration::from_millis(50);

/// State of one layer.
#[derive(Clone, Debug)]
pub struct LayerProgress {
    /// Digest of the layer's blob.
    pub digest: String,
    /// What is done now.
    pub stage: Stage,
    /// Compressed bytes that passed this stage.
    pub done: u64,
    /// Compressed size.
    pub total: u64,
}

/// What happens to a layer, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// For a free download slot.
    Waiting,
    /// Bytes arrive; what has arrived is unpacked meanwhile.
    Downloading,
    /// All bytes are here.
    Unpacking,
    /// In the store.
    Done,
    /// Was in the store before.
    Exists,
}

/// Called on each change of stage, and at most every 50 ms per layer otherwise. Must not block.
pub type Progress = Arc<dyn Fn(LayerProgress) + Send + Sync>;

/// Everyone who wants to know about one pull; who joins late hears the rest.
#[derive(Clone, Default)]
pub(crate) struct Listeners(Arc<Mutex<Vec<Progress>>>);

impl Listeners {
    pub(crate) fn add(&self, listener: Progress) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    /// Passes everything on to others too.
    pub(crate) fn also(&self, others: &Self) {
        let others = others.clone();
        self.add(Arc::new(move |progress| others.tell(&progress)));
    }

    fn tell(&self, progress: &LayerProgress) {
        let listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for listener in listeners {
            listener(progress.clone());
        }
    }
}

/// Reports of one layer.
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

    /// The last report: [`Stage::Done`] or [`Stage::Exists`].
    pub(crate) fn end(&self, stage: Stage) {
        self.report(stage, self.total);
    }

    fn send(&self, stage: Stage, done: u64) {
        self.listeners.tell(&LayerProgress { digest: self.digest.to_string(), stage, done, total: self.total });
    }
}
