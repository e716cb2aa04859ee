//! Manifests and indexes: docker schema 2 and OCI, which differ in media types only.

use serde::{Deserialize, Serialize};

use crate::{
    Digest, Error,
    index::LayerRef,
    module,
    platform::{self, Platform},
};

/// Media types that a registry may send as a manifest.
pub(crate) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json";

pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";

/// Most layers of an image, which is the limit of overlayfs.
pub(crate) const LAYERS_MAX: usize = 500;
/// Largest accepted size of a compressed layer, in bytes.
const BLOB_MAX: u64 = 1 << 40;

/// A reference to a blob (OCI image spec, descriptor).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub(crate) annotations: std::collections::BTreeMap<String, String>,
}

/// The manifest of one image.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub(crate) schema_version: u32,
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub(crate) annotations: std::collections::BTreeMap<String, String>,
}

/// An index of several manifests, usually one for each platform.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ImageIndex {
    pub(crate) schema_version: u32,
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) manifests: Vec<Descriptor>,
}

/// A parsed manifest blob.
pub(crate) enum Document {
    Image(Manifest),
    Index(ImageIndex),
}

/// Parses a manifest or an index. The fields decide which of the two it is, because media types of registries are not
/// always right.
pub(crate) fn parse(bytes: &[u8], media_type: &str) -> Result<Document, Error> {
    let invalid = |cause: serde_json::Error| Error::invalid(format!("manifest is not valid: {cause}"));
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(invalid)?;
    if value.get("schemaVersion").and_then(serde_json::Value::as_u64) == Some(1) {
        return Err(Error::invalid(
            "the manifest has the obsolete docker schema 1; push the image again with a current tool",
        ));
    }
    match (value.get("manifests").is_some(), value.get("config").is_some()) {
        (true, false) => serde_json::from_value(value).map(Document::Index).map_err(invalid),
        (false, true) => {
            let manifest: Manifest = serde_json::from_value(value).map_err(invalid)?;
            check(&manifest)?;
            Ok(Document::Image(manifest))
        }
        _ => Err(Error::invalid(format!("neither an image manifest nor an index ({media_type})"))),
    }
}

fn check(manifest: &Manifest) -> Result<(), Error> {
    let kind = manifest.config.media_type.as_str();
    if !matches!(kind, "" | OCI_CONFIG | DOCKER_CONFIG | "application/octet-stream") && !module::is_config(kind) {
        return Err(Error::invalid(format!("not a container image: its configuration is {kind}")));
    }
    let modules = manifest.layers.iter().filter(|layer| module::is_layer(&layer.media_type)).count();
    if modules > 1 || (module::is_config(kind) && modules == 0) {
        return Err(Error::invalid(format!("{modules} layers are WebAssembly modules; an image has one at most")));
    }
    if manifest.layers.len() > LAYERS_MAX {
        return Err(Error::invalid(format!("{} layers, at most {LAYERS_MAX} can be mounted", manifest.layers.len())));
    }
    match manifest.layers.iter().find(|layer| layer.size > BLOB_MAX) {
        Some(layer) => Err(Error::invalid(format!(
            "layer {} has a size of {} bytes, at most {BLOB_MAX} are accepted",
            layer.digest, layer.size
        ))),
        None => Ok(()),
    }
}

/// Returns the entry of an index for this machine.
pub(crate) fn choose<'a>(index: &'a ImageIndex, host: &Platform) -> Result<&'a Descriptor, Error> {
    let entries: Vec<(Platform, &Descriptor)> =
        index.manifests.iter().map(|entry| (entry.platform.clone().unwrap_or_default(), entry)).collect();
    platform::choose(host, &entries).copied()
}

/// Returns the layers of a manifest with their chain ids. The configuration must have as many layers.
pub(crate) fn layers(manifest: &Manifest, diff_ids: &[Digest]) -> Result<Vec<LayerRef>, Error> {
    if manifest.layers.len() != diff_ids.len() {
        return Err(Error::invalid(format!(
            "the manifest has {} layers, the configuration {}",
            manifest.layers.len(),
            diff_ids.len()
        )));
    }
    let mut parent: Option<Digest> = None;
    let mut layers = Vec::with_capacity(diff_ids.len());
    for (layer, diff_id) in manifest.layers.iter().zip(diff_ids) {
        let chain = match module::is_layer(&layer.media_type) {
            true => Digest::chain(parent.as_ref(), &module::chain_diff_id(diff_id)),
            false => Digest::chain(parent.as_ref(), diff_id),
        };
        parent = Some(chain.clone());
        layers.push(LayerRef {
            blob: layer.digest.clone(),
            size: layer.size,
            media_type: layer.media_type.clone(),
            diff_id: diff_id.clone(),
            chain,
        });
    }
    Ok(layers)
}
