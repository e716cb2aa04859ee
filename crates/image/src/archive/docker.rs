//! A docker archive's images (`manifest.json`), given OCI manifests.

use serde::Deserialize;

use super::{
    layout::{Found, IMAGES_MAX},
    received::{Part, Received},
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

pub(super) fn images(received: &Received) -> Result<Vec<Found>, Error> {
    let text = received.json(received.file("manifest.json")?)?;
    let entries: Vec<Entry> = serde_json::from_slice(&text)
        .map_err(|cause| Error::invalid(format!("manifest.json of the docker archive is not valid: {cause}")))?;
    if entries.len() > IMAGES_MAX {
        return Err(Error::invalid(format!("more than {IMAGES_MAX} images in the archive")));
    }
    entries.into_iter().map(|entry| image(received, entry)).collect()
}

fn image(received: &Received, entry: Entry) -> Result<Found, Error> {
    let descriptor = |part: &Part, media_type: &str| Descriptor {
        media_type: media_type.to_owned(),
        digest: part.digest.clone(),
        size: part.size,
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
        .map(|name| received.file(name).map(|part| descriptor(part, "application/vnd.oci.image.layer.v1.tar")))
        .collect();
    let manifest = Manifest {
        schema_version: 2,
        media_type: OCI_MANIFEST.to_owned(),
        config: descriptor(received.file(&entry.config)?, OCI_CONFIG),
        layers: layers?,
    };
    let text = serde_json::to_vec(&manifest).map_err(|cause| Error::system(format!("encode a manifest: {cause}")))?;
    let digest = Digest::of(&text);
    Ok(Found {
        manifest,
        digest: digest.clone(),
        documents: vec![digest],
        names: entry.repo_tags.unwrap_or_default(),
        target: None,
        made: Some(text),
    })
}
