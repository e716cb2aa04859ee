//! Images of a docker archive (`manifest.json`), converted to OCI manifests.

use serde::Deserialize;

use super::{
    files::{ArchiveFile, ArchiveFiles},
    layout::{ArchiveImage, IMAGES_MAX},
};
use crate::{
    Digest, Error,
    manifest::{Descriptor, LAYERS_MAX, Manifest, OCI_CONFIG, OCI_MANIFEST},
};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

pub(super) fn images(files: &ArchiveFiles) -> Result<Vec<ArchiveImage>, Error> {
    let text = files.json(files.file("manifest.json")?)?;
    let entries: Vec<Entry> = serde_json::from_slice(&text)
        .map_err(|cause| Error::invalid(format!("manifest.json of the docker archive is not valid: {cause}")))?;
    if entries.len() > IMAGES_MAX {
        return Err(Error::invalid(format!("more than {IMAGES_MAX} images in the archive")));
    }
    entries.into_iter().map(|entry| image(files, entry)).collect()
}

fn image(files: &ArchiveFiles, entry: Entry) -> Result<ArchiveImage, Error> {
    let descriptor = |archive_file: &ArchiveFile, media_type: &str| Descriptor {
        media_type: media_type.to_owned(),
        digest: archive_file.digest.clone(),
        size: archive_file.size,
        platform: None,
        annotations: Default::default(),
    };
    if entry.layers.len() > LAYERS_MAX {
        let count = entry.layers.len();
        return Err(Error::invalid(format!("{count} layers, at most {LAYERS_MAX} can be mounted")));
    }
    let layers: Result<Vec<_>, Error> = entry
        .layers
        .iter()
        .map(|name| {
            files.file(name).map(|archive_file| descriptor(archive_file, "application/vnd.oci.image.layer.v1.tar"))
        })
        .collect();
    let manifest = Manifest {
        schema_version: 2,
        media_type: OCI_MANIFEST.to_owned(),
        config: descriptor(files.file(&entry.config)?, OCI_CONFIG),
        layers: layers?,
        annotations: Default::default(),
    };
    let text = serde_json::to_vec(&manifest).map_err(|cause| Error::system(format!("encode a manifest: {cause}")))?;
    let digest = Digest::of(&text);
    Ok(ArchiveImage {
        manifest,
        digest: digest.clone(),
        documents: vec![digest],
        names: entry.repo_tags.unwrap_or_default(),
        target: None,
        generated_manifest: Some(text),
    })
}
