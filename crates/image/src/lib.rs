//! Images: references, registries, content store, layers, snapshots.
//!
//! A [`Store`] is one folder. [`Store::pull`] brings an image into it:
//!
//! ```text
//! reference ─▶ endpoints (mirrors, host) ─▶ manifest ─▶ configuration
//!                                                            │ layers, all at once
//!                 ┌──────────────────────────────────────────┴──────────────┐
//!                 ▼                                                         ▼
//!   download ─▶ blob on disk, digest checked      as it arrives: inflate ─▶ tar ─▶ folder, diff id checked
//!                 └──────────────────────────────────────────┬──────────────┘
//!                                                            ▼
//!                            syncfs ─▶ rename ─▶ index: the layer is visible
//! ```
//!
//! [`Store::prepare`] gives a container its writable layer, [`Store::mount`] the overlay of it all as a descriptor: nothing is
//! attached to the host's mount namespace. [`Store::discard`] takes the writable layer away.
//!
//! # What holds
//! - What the index lists was on disk before it was listed. A crash leaves files that nothing lists, never the reverse; the
//!   next opening removes them.
//! - Registries and archives are hostile: every size is bounded, every digest checked, and no path is resolved but beneath
//!   its layer's own root.
//! - Questions ([`Store::find`], [`Store::list`], [`Store::usage`]) are answered from memory.
//! - No image text is control data: labels and names go to the user, not to the kernel.

#![forbid(unsafe_code)]

mod archive;
mod config;
mod content;
mod digest;
mod error;
mod figures;
mod flight;
mod gc;
mod image;
mod index;
mod manifest;
mod platform;
mod progress;
mod pull;
mod recovery;
mod reference;
mod registry;
mod snapshot;
mod state;
mod store;
mod trash;
mod unpack;
mod usage;

pub use crate::{
    config::{Credentials, Registries},
    digest::Digest,
    error::{Error, ErrorKind},
    figures::{Figures, Holdings, OUTCOMES},
    image::{Image, ImageConfig, Usage},
    platform::Platform,
    progress::{LayerProgress, Progress, Stage},
    reference::Reference,
    snapshot::{Appearance, IdMap, IdRange},
    store::Store,
};

/// Runs what waits for a disk on a thread that may wait.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    let span = tracing::Span::current();
    match tokio::task::spawn_blocking(move || span.in_scope(work)).await {
        Ok(result) => result,
        Err(cause) => Err(Error::system(format!("a task ended early: {cause}"))),
    }
}
