//! Takes a node over from another engine: `pinion migrate`.
//!
//! ```text
//! containerd: meta.db (bolt) + content store ──┐
//! CRI-O: containers/storage, tar-split ────────┼─▶ Inventory: images as Archives, pods ─▶ Plan: what stops, steps
//! Docker: image/overlay2, tar-split ───────────┘
//! ```
//!
//! The stores are read from their files, so the engine may be running or stopped. Nothing of them is changed. An image
//! becomes an OCI layout or a docker archive that the daemon imports: it computes every digest again and refuses blobs
//! that differ, so what is read here needs no trust. It is bounded: files, entries, depth.
//!
//! An image whose layers are not all there is reported, with the reference to pull.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod archive;
mod bolt;
mod containerd;
mod containers_storage;
mod content;
mod docker;
mod error;
mod file;
mod inventory;
mod plan;
mod pods;
mod runtimes;
mod source;
mod stored_image;
mod tar_split;

pub use archive::Archive;
pub use error::Error;
pub use inventory::{Inventory, take_inventory};
pub use plan::{Plan, Step, plan};
pub use pods::Pod;
pub use source::Source;
pub use stored_image::StoredImage;
