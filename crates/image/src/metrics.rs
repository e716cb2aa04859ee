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
