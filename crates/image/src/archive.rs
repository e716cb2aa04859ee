//! Image archives, as `docker save`, `skopeo`, `buildah` and Pinion's own `save` write them.
//!
//! | file in the archive | format |
//! |---|---|
//! | `oci-layout`, `index.json`, `blobs/sha256/…` | OCI image layout |
//! | `manifest.json` | docker archive: configuration and layers by file name |
//!
//! An export is both at once.

mod channel;
mod docker;
mod export;
mod files;
mod import;
mod layout;

pub use import::ImportedImage;
