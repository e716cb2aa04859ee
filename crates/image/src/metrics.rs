//! Metrics of the store.

use telemetry::{Counter, Gauge, Histogram, bounds};

use crate::{Error, ErrorKind};

/// Outcomes of pulls, in the order of [`Metrics::pulls`]: `ok`, or the kind of the error.
pub const OUTCOMES: [&str; 7] = ["ok", "not_found", "invalid", "unauthorized", "unavailable", "corrupt", "system"];

/// Metrics since the store was opened.
#[derive(Debug)]
pub struct Metrics {
    /// Pulls that ended, by outcome (the index in [`OUTCOMES`]). Callers that shared one pull count once.
    pub pulls: [Counter; OUTCOMES.len()],
    /// Pulls that are running.
    pub pulls_running: Gauge,
    /// Durations of successful pulls.
    pub pull_duration: Histogram,
    /// Bytes of layers that registries sent.
    pub fetched_bytes: Counter,
    /// Durations of unpacking a layer, from the first byte to the last file. Layers are unpacked while they are
    /// downloaded.
    pub unpack_duration: Histogram,
    /// Layers that were removed because no image needed them any longer.
    pub layers_collected: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            pulls: Default::default(),
            pulls_running: Gauge::new(),
            pull_duration: Histogram::new(&bounds::TRANSFER),
            fetched_bytes: Counter::new(),
            unpack_duration: Histogram::new(&bounds::TRANSFER),
            layers_collected: Counter::new(),
        }
    }
}

impl Metrics {
    pub(crate) fn count_pull<T>(&self, outcome: &Result<T, Error>) {
        let index = match outcome.as_ref().map_err(|error| error.kind) {
            Ok(_) => 0,
            Err(ErrorKind::NotFound) => 1,
            Err(ErrorKind::Invalid) => 2,
            Err(ErrorKind::Unauthorized) => 3,
            Err(ErrorKind::Unavailable) => 4,
            Err(ErrorKind::Corrupt) => 5,
            Err(ErrorKind::System) => 6,
        };
        self.pulls[index].add(1);
    }
}

/// Numbers and sizes of what the store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of images.
    pub images: u64,
    /// Number of layers.
    pub layers: u64,
    /// Disk usage of unpacked layers, in bytes.
    pub layer_bytes: u64,
    /// Bytes of blobs: compressed layers, manifests, configurations.
    pub blob_bytes: u64,
    /// Number of writable layers of containers.
    pub snapshots: u64,
    /// Disk usage of writable layers, in bytes, as of the last sample.
    pub snapshot_bytes: u64,
    /// Removed directories that are not deleted yet.
    pub trash: u64,
}

impl crate::Store {
    /// Returns the metrics since the store was opened.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Returns the numbers and sizes of what the store holds now.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let state = self.inner.state.lock();
        Totals {
            images: state.images.len() as u64,
            layers: state.layers.len() as u64,
            layer_bytes: state.layers.values().map(|layer| layer.usage.bytes).sum(),
            blob_bytes: state.images.values().map(|known| known.record.size).sum(),
            snapshots: state.snapshots.len() as u64,
            snapshot_bytes: state.snapshots.values().map(|snapshot| snapshot.usage.bytes).sum(),
            trash: self.inner.trash.waiting(),
        }
    }
}
