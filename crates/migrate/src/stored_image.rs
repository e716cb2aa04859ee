//! An image in the store of another engine.

use std::path::Path;

use crate::{Archive, Error, archive::Contents, file, tar_split::TarSplit};

/// Largest configuration of an image, in bytes.
const CONFIG_MAX: usize = 8 << 20;

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
