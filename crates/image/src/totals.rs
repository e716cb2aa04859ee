//! Numbers and sizes of what the store holds, and its metrics.

use crate::{Metrics, Store};

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

impl Store {
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
