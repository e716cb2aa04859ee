//! Images as files: what `docker save`, `skopeo`, `buildah` and our own `save` write.
//!
//! | file in the archive | says |
//! |---|---|
//! | `oci-layout`, `index.json`, `blobs/sha256/…` | OCI image layout |
//! | `manifest.json` | docker archive: configuration and layers by file name |
//!
//! An export has both.

mod channel;
mod docker;
mod export;
mod import;
mod layout;
mod received;

pub use import::Imported;
