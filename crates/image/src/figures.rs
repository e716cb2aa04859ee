//! What the store tells of itself in figures.

use telemetry::{Counter, Gauge, Histogram, bounds};

use crate::{Error, ErrorKind};

/// How a pull ends, as [`Figures::pulls`] counts it: `ok`, or the kind of its error.
pub const OUTCOMES: [&str; 7] = ["ok", "not_found", "invalid", "unauthorized", "unavailable", "corrupt", "system"];

/// Counted since the store was opened.
#[derive(Debug)]
pub struct Figures {
    /// Pulls that ended, by outcome (the index in [`OUTCOMES`]). Those that joined another are not counted again.
    pub pulls: [Counter; OUTCOMES.len()],
    /// Pulls that run.
    pub pulling: Gauge,
    /// How long pulls took that ended well.
    pub pull_took: Histogram,
    /// Bytes of layers that registries sent.
    pub fetched: Counter,
    /// How long layers took from their first byte to their last file; while they are downloaded they are unpacked.
    pub unpack_took: Histogram,
    /// Layers that no image needed any more and that were taken away.
    pub collected: Counter,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            pulls: Default::default(),
            pulling: Gauge::new(),
            pull_took: Histogram::new(&bounds::TRANSFER),
            fetched: Counter::new(),
            unpack_took: Histogram::new(&bounds::TRANSFER),
            collected: Counter::new(),
        }
    }
}

impl Figures {
    pub(crate) fn pulled<T>(&self, outcome: &Result<T, Error>) {
        let which = match outcome.as_ref().map_err(|error| error.kind) {
            Ok(_) => 0,
            Err(ErrorKind::NotFound) => 1,
            Err(ErrorKind::Invalid) => 2,
            Err(ErrorKind::Unauthorized) => 3,
            Err(ErrorKind::Unavailable) => 4,
            Err(ErrorKind::Corrupt) => 5,
            Err(ErrorKind::System) => 6,
        };
        self.pulls[which].add(1);
    }
}

/// What the store holds at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Images.
    pub images: u64,
    /// Layers.
    pub layers: u64,
    /// Bytes of unpacked layers, on disk.
    pub layer_bytes: u64,
    /// Bytes of blobs: layers as they were sent, manifests, configurations.
    pub blob_bytes: u64,
    /// Writable layers of containers.
    pub snapshots: u64,
    /// Their bytes, as sampled last.
    pub snapshot_bytes: u64,
    /// Directories that were taken away and are not deleted yet.
    pub trash: u64,
}

impl crate::Store {
    /// What happened.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.inner.figures
    }

    /// What is there.
    #[must_use]
    pub fn holdings(&self) -> Holdings {
        let state = self.inner.state.lock();
        Holdings {
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
