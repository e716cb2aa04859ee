//! Images: references, registries, content store, layers, snapshots.
//!
//! A [`Store`] is one directory. [`Store::pull`] brings an image into it:
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
//! [`Store::prepare`] gives a container its writable layer, [`Store::mount`] the overlay of it all as a descriptor:
//! nothing is attached to the host's mount namespace. [`Store::discard`] takes the writable layer away.
//!
//! # What holds
//! - What the index lists was on disk before it was listed. A crash leaves files that nothing lists, never the reverse;
//!   the next opening removes them.
//! - The index can be lost: the content store has all that it lists a second time, and it is made again when it is
//!   opened.
//! - What a container uses is never removed, whatever the index says; nor is anything that could merely not be read.
//! - Registries and archives are hostile: every size is bounded, every digest checked, and no path is resolved but
//!   beneath its layer's own root.
//! - Questions ([`Store::find`], [`Store::list`], [`Store::usage`]) are answered from memory.
//! - Nothing here waits for a disk on an async thread: each disk has threads of its own ([`Disk`]).
//! - No image text is control data: labels and names go to the user, not to the kernel.

#![forbid(unsafe_code)]

mod archive;
mod config;
mod content;
mod digest;
mod disk;
mod durable;
mod error;
mod figures;
mod flight;
mod format;
mod gc;
mod hooks;
mod image;
mod index;
mod keeper;
mod manifest;
mod platform;
mod progress;
mod pull;
mod records;
mod recovery;
mod reference;
mod registry;
mod reserve;
mod snapshot;
mod state;
mod store;
mod superseded;
mod trash;
mod tree_digest;
mod unpack;
mod usage;

pub use crate::{
    archive::Imported,
    config::{Credentials, Registries, Transfers},
    digest::Digest,
    disk::Disk,
    error::{Error, ErrorKind},
    figures::{Figures, Holdings, OUTCOMES},
    format::DiskFormat,
    image::{Image, ImageConfig, Usage},
    platform::Platform,
    progress::{LayerProgress, Progress, Stage},
    reference::Reference,
    snapshot::{Appearance, IdMap, IdRange},
    store::Store,
};

#[cfg(feature = "failpoint")]
pub use crate::hooks::observe;
