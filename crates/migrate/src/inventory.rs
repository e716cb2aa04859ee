//! What another engine has: images and pods.

use std::path::{Path, PathBuf};

use doctor::Engine;
use serde::Serialize;

use crate::{
    Archive, Error, Pod, archive::Contents, containerd, containers_storage, docker, file, tar_split::TarSplit,
};

/// Largest configuration of an image, in bytes.
const CONFIG_MAX: usize = 8 << 20;

/// An engine whose store can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// containerd.
    Containerd,
    /// CRI-O.
    Crio,
    /// Docker, with cri-dockerd.
    Docker,
}

impl Source {
    /// Returns the engine.
    #[must_use]
    pub fn engine(self) -> Engine {
        match self {
            Self::Containerd => Engine::Containerd,
            Self::Crio => Engine::Crio,
            Self::Docker => Engine::Docker,
        }
    }

    /// Returns the directory of its store.
    #[must_use]
    pub fn root(self) -> &'static Path {
        Path::new(match self {
            Self::Containerd => "/var/lib/containerd",
            Self::Crio => "/var/lib/containers/storage",
            Self::Docker => "/var/lib/docker",
        })
    }
}

/// An image of another engine.
#[derive(Debug)]
pub struct StoredImage {
    /// Digest of its manifest or index, or of its configuration if the store keeps only that.
    pub id: String,
    /// Its names: with a tag, or with a digest.
    pub names: Vec<String>,
    /// The image, or why it is not complete and must be pulled.
    pub archive: Result<Archive, String>,
}

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

/// Returns an image whose layers were unpacked, as a docker archive. The digest of its manifest is not that of the
/// registry, because the compressed layers no longer exist; so it keeps its tags and its id, but not names with a
/// digest.
pub(crate) fn unpacked_image(
    id: &str,
    names: Vec<String>,
    config: &Path,
    layers: Result<Vec<TarSplit>, Error>,
) -> StoredImage {
    let tags: Vec<String> = names.iter().filter(|name| !name.contains('@')).cloned().collect();
    let archive = match tags.is_empty() {
        true => Err("only known by the digest of a manifest whose layers are unpacked".to_owned()),
        false => layers.and_then(|layers| docker_archive(tags, config, layers)).map_err(|error| error.to_string()),
    };
    StoredImage { id: format!("sha256:{id}"), names, archive }
}

fn docker_archive(tags: Vec<String>, config: &Path, layers: Vec<TarSplit>) -> Result<Archive, Error> {
    let text = file::read(config)?;
    if text.len() > CONFIG_MAX {
        return Err(Error::invalid(config, format!("larger than {CONFIG_MAX} bytes")));
    }
    let files: Vec<String> = (0..layers.len()).map(|number| format!("{number}.tar")).collect();
    let manifest = serde_json::json!([{"Config": "config.json", "RepoTags": tags, "Layers": files}]);
    let mut archive = Archive::default();
    archive.add("manifest.json", Contents::Bytes(manifest.to_string().into_bytes()));
    archive.add("config.json", Contents::Bytes(text));
    for (name, layer) in files.into_iter().zip(layers) {
        archive.add(name, Contents::Layer(layer));
    }
    Ok(archive)
}
