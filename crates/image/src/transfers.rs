//! The transfers that are running: operations that several callers wait for, and their limits.

mod ready_layer;
mod unpack_limit;

use std::sync::Arc;

use tokio::sync::Semaphore;

pub(crate) use self::{
    ready_layer::{ReadyLayer, Scratch, UnpackedLayer},
    unpack_limit::UnpackLimit,
};
use crate::{Digest, Image, registry::Slots, single_flight::SingleFlight};

/// Archives that are imported or exported at the same time. Each has a thread, and waits for its client.
const ARCHIVES_MAX: usize = 8;

/// The single-flight key of a layer: where it comes from, and a digest of everything that is claimed about it and the
/// layers below (chain id, blob, size). An image with false claims about the layers of another image shares none of
/// that image's operations.
pub(crate) type LayerKey = (String, Digest);

/// The running pulls and archives, and the limits that they share.
pub(crate) struct Transfers {
    pub(crate) images: SingleFlight<String, Arc<Image>>,
    pub(crate) layers: SingleFlight<LayerKey, ReadyLayer>,
    pub(crate) slots: Arc<Slots>,
    pub(crate) unpacks: Arc<UnpackLimit>,
    pub(crate) archives: Semaphore,
}

impl Default for Transfers {
    fn default() -> Self {
        Self {
            images: SingleFlight::default(),
            layers: SingleFlight::default(),
            slots: Arc::default(),
            unpacks: Arc::default(),
            archives: Semaphore::new(ARCHIVES_MAX),
        }
    }
}
