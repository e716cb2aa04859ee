//! containers/storage, the store of CRI-O and Podman: layers are unpacked, and kept with tar-split's metadata.
//!
//! ```text
//! overlay-images/images.json              id (of the configuration), names, top layer
//! overlay-images/ID/=BASE64(sha256:ID)    the configuration
//! overlay-layers/layers.json              id, parent
//! overlay-layers/ID.tar-split.gz, overlay/ID/diff
//! overlay-containers/containers.json      names
//! ```

use std::{collections::HashMap, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;

use crate::{
    Error, Pod, StoredImage, file,
    pods::Pods,
    stored_image::unpacked_image,
    tar_split::{Opened, TarSplit},
};

/// Most layers of an image.
const LAYERS_MAX: usize = 1024;

#[derive(Deserialize)]
struct ImageRecord {
    id: String,
    #[serde(default)]
    names: Option<Vec<String>>,
    #[serde(default)]
    layer: String,
}

#[derive(Deserialize)]
struct LayerRecord {
    id: String,
    #[serde(default)]
    parent: String,
}

#[derive(Deserialize)]
struct ContainerRecord {
    #[serde(default)]
    names: Option<Vec<String>>,
}

/// Returns images and pods.
pub(crate) fn read(root: &Path) -> Result<(Vec<StoredImage>, Vec<Pod>), Error> {
    let images: Vec<ImageRecord> = file::json(&root.join("overlay-images/images.json"))?;
    let layers: Vec<LayerRecord> = file::json(&root.join("overlay-layers/layers.json"))?;
    let parents: HashMap<String, String> = layers.into_iter().map(|layer| (layer.id, layer.parent)).collect();
    let mut opened = Opened::default();
    let image = |record: ImageRecord| {
        let layers = layers_of(root, &record.layer, &parents, &mut opened);
        let key = STANDARD.encode(format!("sha256:{}", record.id));
        let config = root.join("overlay-images").join(&record.id).join(format!("={key}"));
        unpacked_image(&record.id, record.names.unwrap_or_default(), &config, layers)
    };
    let images = images.into_iter().filter(|record| file::hex(&record.id).is_some()).map(image).collect();
    let mut pods = Pods::default();
    let containers: Vec<ContainerRecord> =
        file::json(&root.join("overlay-containers/containers.json")).unwrap_or_default();
    for name in containers.into_iter().flat_map(|container| container.names.unwrap_or_default()) {
        pods.add_named(&name);
    }
    Ok((images, pods.finish()))
}

/// Returns the layers of an image, the lowest first.
fn layers_of(
    root: &Path,
    top: &str,
    parents: &HashMap<String, String>,
    opened: &mut Opened,
) -> Result<Vec<TarSplit>, Error> {
    let (mut layers, mut next) = (Vec::new(), top);
    while !next.is_empty() {
        let parent = parents.get(next).ok_or_else(|| Error::Missing(format!("layer {next} is not in the store")))?;
        if file::hex(next).is_none() || layers.len() == LAYERS_MAX {
            return Err(Error::Missing(format!("layer {next}: not a valid id, or too many layers")));
        }
        let metadata = root.join("overlay-layers").join(format!("{next}.tar-split.gz"));
        layers.push(opened.layer(metadata, root.join("overlay").join(next).join("diff"))?);
        next = parent;
    }
    layers.reverse();
    Ok(layers)
}
