//! Layers that were fetched, and that the pulls which share them have not listed yet.

use std::{path::PathBuf, sync::Arc};

use crate::{index::LayerRecord, trash::Trash};

/// A temporary file or directory, which is deleted unless it was renamed. The number is the count of failed syncs
/// before its first byte was written.
pub(crate) struct Scratch(pub(crate) PathBuf, pub(crate) Arc<Trash>, pub(crate) u64);

impl Drop for Scratch {
    fn drop(&mut self) {
        // Not deleted here, because this may be an async thread. What cannot be deleted is found at the next opening.
        self.1.delete_later(std::mem::take(&mut self.0));
    }
}

/// An unpacked layer that is not visible yet and belongs to the pulls that share it.
pub(crate) struct UnpackedLayer {
    pub(crate) scratch: Scratch,
    pub(crate) record: LayerRecord,
}

/// A layer that can be committed.
#[derive(Clone)]
pub(crate) enum ReadyLayer {
    /// The layer was visible before.
    Listed,
    /// The layer is complete, but it may not be on disk yet.
    Unpacked(Arc<UnpackedLayer>),
}

impl ReadyLayer {
    /// Returns the count of failed syncs before it was written; `None` if it was on disk before.
    pub(crate) fn failed_syncs(&self) -> Option<u64> {
        match self {
            Self::Listed => None,
            Self::Unpacked(directory) => Some(directory.scratch.2),
        }
    }
}
