//! Images: references, registries, content store, layers, snapshots.
//!
//! A [`Store`] is one directory. [`Store::pull`] pulls an image into it:
//!
//! ```text
//! reference ─▶ endpoints (mirrors, host) ─▶ manifest ─▶ configuration
//!                                                            │ layers, all at once
//!                 ┌──────────────────────────────────────────┴──────────────┐
//!                 ▼                                                         ▼
//!   download ─▶ blob on disk, digest checked      as it arrives: inflate ─▶ tar ─▶ directory, diff id checked
//!                 └──────────────────────────────────────────┬──────────────┘
//!                                                            ▼
//!        syncfs ─▶ rename ─▶ fsync of the directories ─▶ records ─▶ index: the layer is visible
//! ```
//!
//! [`Store::prepare`] creates the writable layer of a container, and [`Store::mount`] returns the overlay of all its
//! layers as the descriptor of a detached mount: nothing is attached to the host's mount namespace. [`Store::discard`]
//! removes the writable layer.
//!
//! # Invariants
//! - Everything that the index lists was on disk before it was listed. A crash leaves files that are not listed, never
//!   the reverse; the next opening removes them.
//! - The index may be lost: the content store has a copy of its records, and the index is rebuilt from it at the
//!   opening.
//! - What a container uses is never removed, whatever the index lists; nor is anything that merely could not be read.
//! - Registries and archives are untrusted: every size is limited, every digest is verified, and paths are resolved
//!   only beneath the root of their layer.
//! - Queries ([`Store::find`], [`Store::list`], [`Store::usage`]) are answered from memory.
//! - No async thread waits for a disk: each disk has its own threads ([`Disk`]).
//! - Text in an image is never control data: labels and names are shown to the user and not passed to the kernel.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod archive;
mod background;
mod config;
mod content;
mod digest;
mod disk;
mod durable;
mod error;
mod file_system_sync;
mod format;
mod gc;
mod hooks;
mod image;
mod index;
mod manifest;
mod metrics;
mod module;
mod open;
mod platform;
mod progress;
mod pull;
mod records;
mod recovery;
mod reference;
mod registry;
mod repair;
mod reserve;
mod single_flight;
mod snapshot;
mod state;
mod store;
mod superseded;
mod totals;
mod transfers;
mod trash;
mod tree_digest;
mod unpack;
mod usage;

pub use crate::{
    archive::ImportedImage,
    config::{Credentials, Registries, TransferLimits},
    digest::Digest,
    disk::Disk,
    error::{Error, ErrorKind},
    format::DiskFormat,
    image::{Image, ImageConfig, Usage},
    metrics::{Metrics, OUTCOMES},
    module::{ANNOTATION_HANDLER, ANNOTATION_VARIANT, MODULE_PATH},
    platform::Platform,
    progress::{LayerProgress, ProgressCallback, Stage},
    reference::Reference,
    snapshot::{IdMap, MountOptions},
    store::Store,
    totals::Totals,
};

#[cfg(feature = "failpoint")]
pub use crate::hooks::observe;
