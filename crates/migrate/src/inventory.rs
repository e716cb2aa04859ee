//! What another engine has: images and pods.

use std::path::PathBuf;

use crate::{Error, Pod, Source, StoredImage, containerd, containers_storage, docker};

/// Images and pods of an engine.
#[derive(Debug)]
pub struct Inventory {
    /// The engine.
    pub source: Source,
    /// The directory that was read.
    pub root: PathBuf,
    /// All images.
    pub images: Vec<StoredImage>,
    /// All pods.
    pub pods: Vec<Pod>,
}

/// Reads the store of an engine, running or stopped. `root` replaces its directory, `namespace` containerd's `k8s.io`.
///
/// # Errors
/// The store does not exist, is damaged, or has an unknown format. Errors of single images are theirs.
pub fn take_inventory(source: Source, root: Option<PathBuf>, namespace: Option<&str>) -> Result<Inventory, Error> {
    let root = root.unwrap_or_else(|| source.root().to_owned());
    let (mut images, pods) = match source {
        Source::Containerd => containerd::read(&root, namespace.unwrap_or("k8s.io"))?,
        Source::Crio => containers_storage::read(&root)?,
        Source::Docker => docker::read(&root)?,
    };
    images.sort_by(|a, b| a.names.cmp(&b.names));
    Ok(Inventory { source, root, images, pods })
}
