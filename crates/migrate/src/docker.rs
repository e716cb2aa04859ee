//! Docker: layers of the storage driver overlay2, or the content store of its containerd.
//!
//! ```text
//! image/overlay2/repositories.json                     names → id of the configuration
//! image/overlay2/imagedb/content/sha256/ID             the configuration, which lists the diff ids of the layers
//! image/overlay2/layerdb/sha256/CHAIN/{cache-id,tar-split.json.gz}
//! overlay2/CACHE-ID/diff
//! containers/ID/config.v2.json                         names
//! ```

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use ring::digest::{SHA256, digest};
use serde::Deserialize;

use crate::{
    Error, Pod, Source, StoredImage, containerd, file,
    pods::Pods,
    stored_image::unpacked_image,
    tar_split::{Opened, TarSplit},
};

/// The namespace of Docker's images in containerd.
const NAMESPACE: &str = "moby";
/// Where containerd keeps them: the one that dockerd starts, below its own root, or the node's.
const OWN_CONTAINERD: &str = "containerd/daemon";
const NODE_CONTAINERD: &str = "/var/lib/containerd";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Repositories {
    #[serde(default)]
    repositories: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Config {
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Container {
    #[serde(default)]
    name: String,
}

/// Returns images and pods. Images without a name are not read: nothing refers to them.
pub(crate) fn read(root: &Path) -> Result<(Vec<StoredImage>, Vec<Pod>), Error> {
    let mut pods = Pods::default();
    for id in file::names(&root.join("containers")) {
        let container: Result<Container, Error> = file::json(&root.join("containers").join(id).join("config.v2.json"));
        if let Ok(container) = container {
            pods.add_named(&container.name);
        }
    }
    let mut stores = vec![root.join(OWN_CONTAINERD)];
    if root == Source::Docker.root() {
        stores.push(PathBuf::from(NODE_CONTAINERD));
    }
    let has_database = |path: &&PathBuf| path.join("io.containerd.metadata.v1.bolt/meta.db").exists();
    let mut images = Vec::new();
    for store in stores.iter().filter(has_database) {
        images.extend(containerd::read(store, NAMESPACE)?.0);
    }
    let database = root.join("image/overlay2");
    let repositories = database.join("repositories.json");
    if repositories.exists() || images.is_empty() {
        images.extend(unpacked(root, &database, file::json(&repositories)?));
    }
    Ok((images, pods.finish()))
}

fn unpacked(root: &Path, database: &Path, repositories: Repositories) -> Vec<StoredImage> {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, id) in repositories.repositories.into_values().flatten() {
        names.entry(id).or_default().push(name);
    }
    let mut opened = Opened::default();
    let image = |(id, names): (String, Vec<String>)| {
        let hex = file::hex(&id)?;
        let config = database.join("imagedb/content/sha256").join(hex);
        Some(unpacked_image(hex, names, &config, layers(root, database, &config, &mut opened)))
    };
    names.into_iter().filter_map(image).collect()
}

/// Returns the layers of an image, the lowest first.
fn layers(root: &Path, database: &Path, config: &Path, opened: &mut Opened) -> Result<Vec<TarSplit>, Error> {
    let config: Config = file::json(config)?;
    let mut chain: Option<String> = None;
    let mut layers = Vec::new();
    for diff_id in &config.rootfs.diff_ids {
        // The chain id of the OCI image specification.
        let id = match chain {
            None => diff_id.clone(),
            Some(parent) => {
                let hash = digest(&SHA256, format!("{parent} {diff_id}").as_bytes());
                let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
                format!("sha256:{hex}")
            }
        };
        let hex = file::hex(&id).ok_or_else(|| Error::Missing(format!("layer {id:.100}: not a digest")))?;
        let directory = database.join("layerdb/sha256").join(hex);
        let cache_id = String::from_utf8_lossy(&file::read(&directory.join("cache-id"))?).trim().to_owned();
        if cache_id.is_empty() || !cache_id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(Error::invalid(&directory.join("cache-id"), "not the name of a directory"));
        }
        layers.push(
            opened.layer(directory.join("tar-split.json.gz"), root.join("overlay2").join(cache_id).join("diff"))?,
        );
        chain = Some(id);
    }
    Ok(layers)
}
