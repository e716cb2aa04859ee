//! Images in a content store: manifests and indexes as OCI layouts.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{Archive, Error, archive::Contents, file};

/// Deepest nesting of indexes.
const DEPTH_MAX: u32 = 3;
/// Most manifests of an index.
const MANIFESTS_MAX: usize = 1024;
/// Most layers of an image.
const LAYERS_MAX: usize = 1024;
/// The largest manifest, index or image configuration in bytes, as for the daemon.
const JSON_MAX: u64 = 8 << 20;

/// A reference to a blob.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: String,
    pub(crate) size: u64,
}

/// A manifest or an index.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

/// What was found below a manifest or index.
#[derive(Debug, Default)]
struct Followed {
    /// Blobs by the hex digits of their digest.
    blobs: BTreeMap<String, Contents>,
    /// The manifests and indexes that were read, and whether they are complete.
    complete: BTreeMap<String, bool>,
}

/// The blobs of a content store, as files named by their digest.
#[derive(Debug)]
pub(crate) struct ContentStore {
    pub(crate) blobs: PathBuf,
}

impl ContentStore {
    fn path(&self, digest: &str) -> Result<PathBuf, Error> {
        let hex =
            file::hex(digest).ok_or_else(|| Error::invalid(&self.blobs, format!("{digest:?} is not a digest")))?;
        Ok(self.blobs.join(hex))
    }

    /// Returns the path of a blob of the right size.
    fn blob(&self, descriptor: &Descriptor) -> Result<PathBuf, Error> {
        let path = self.path(&descriptor.digest)?;
        match path.symlink_metadata() {
            Ok(metadata) if metadata.is_file() && metadata.len() == descriptor.size => Ok(path),
            _ => Err(Error::Missing(format!("blob {} is not in the content store", descriptor.digest))),
        }
    }

    /// Returns an OCI layout of an image with these names.
    pub(crate) fn layout(&self, target: &Descriptor, names: &[String]) -> Result<Archive, Error> {
        let mut followed = Followed::default();
        self.follow(target, DEPTH_MAX, &mut followed)?;
        let mut archive = Archive::default();
        archive.add("oci-layout", Contents::Bytes(br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()));
        let entry = |name: &String| {
            serde_json::json!({
                "mediaType": target.media_type, "digest": target.digest, "size": target.size,
                "annotations": {"io.containerd.image.name": name},
            })
        };
        let entries: Vec<_> = names.iter().map(entry).collect();
        let index = serde_json::json!({"schemaVersion": 2, "manifests": entries});
        archive.add("index.json", Contents::Bytes(index.to_string().into_bytes()));
        for (hex, contents) in followed.blobs {
            archive.add(format!("blobs/sha256/{hex}"), contents);
        }
        Ok(archive)
    }

    /// Adds a manifest with its blobs, or an index with those of its manifests that are complete: an engine keeps those
    /// of its own platform only.
    fn follow(&self, descriptor: &Descriptor, depth: u32, followed: &mut Followed) -> Result<(), Error> {
        // An index may name a blob many times, and so may each of those.
        match followed.complete.get(&descriptor.digest) {
            Some(true) => return Ok(()),
            Some(false) => return Err(Error::Missing(format!("{} is not complete", descriptor.digest))),
            None => {}
        }
        let outcome = self.follow_new(descriptor, depth, followed);
        followed.complete.insert(descriptor.digest.clone(), outcome.is_ok());
        outcome
    }

    fn follow_new(&self, descriptor: &Descriptor, depth: u32, followed: &mut Followed) -> Result<(), Error> {
        let path = self.blob(descriptor)?;
        let bytes = file::read_up_to(&path, JSON_MAX)?;
        let invalid = |reason: String| Error::invalid(&path, reason);
        let document: Document = serde_json::from_slice(&bytes).map_err(|error| invalid(error.to_string()))?;
        let hex = file::hex(&descriptor.digest).unwrap_or_default().to_owned();
        if let Some(config) = &document.config {
            if document.layers.len() > LAYERS_MAX {
                return Err(invalid(format!("more than {LAYERS_MAX} layers")));
            }
            let config_path = self.blob(config)?;
            let mut own = vec![(config, Contents::Bytes(file::read_up_to(&config_path, JSON_MAX)?))];
            for layer in &document.layers {
                own.push((layer, Contents::File { path: self.blob(layer)?, size: layer.size }));
            }
            followed.blobs.extend(
                own.into_iter().filter_map(|(blob, contents)| Some((file::hex(&blob.digest)?.to_owned(), contents))),
            );
        } else {
            self.follow_index(&document, depth, followed)?;
        }
        followed.blobs.insert(hex, Contents::Bytes(bytes));
        Ok(())
    }

    fn follow_index(&self, index: &Document, depth: u32, followed: &mut Followed) -> Result<(), Error> {
        if depth == 0 || index.manifests.len() > MANIFESTS_MAX {
            return Err(Error::Missing("an index is nested too deep or too large".to_owned()));
        }
        let mut first_error = None;
        let mut complete = 0;
        for manifest in &index.manifests {
            match self.follow(manifest, depth - 1, followed) {
                Ok(()) => complete += 1,
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        match (complete, first_error) {
            (0, Some(error)) => Err(error),
            (0, None) => Err(Error::Missing("the index is empty".to_owned())),
            _ => Ok(()),
        }
    }
}

/// Returns the directory of blobs in containerd's root directory.
pub(crate) fn of_containerd(root: &Path) -> ContentStore {
    ContentStore { blobs: root.join("io.containerd.content.v1.content/blobs/sha256") }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Writes a blob under the name of a number: whether a digest is right is checked by the daemon.
    fn put(blobs: &Path, number: u32, document: &serde_json::Value) -> Descriptor {
        let bytes = document.to_string().into_bytes();
        let hex = format!("{number:064x}");
        fs::write(blobs.join(&hex), &bytes).expect("written");
        Descriptor { media_type: String::new(), digest: format!("sha256:{hex}"), size: bytes.len() as u64 }
    }

    #[test]
    fn a_blob_that_is_named_many_times_is_read_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = put(dir.path(), 0, &serde_json::json!({}));
        let mut target = put(dir.path(), 1, &serde_json::json!({"config": config, "layers": []}));
        // A walk along every path would read 1024³ manifests.
        for level in 0..DEPTH_MAX {
            target = put(dir.path(), 2 + level, &serde_json::json!({"manifests": vec![&target; MANIFESTS_MAX]}));
        }
        let store = ContentStore { blobs: dir.path().to_owned() };
        let layout = store.layout(&target, &["example.com/deep:1".to_owned()]).expect("complete");
        assert_eq!(layout.members.len(), 2 + 2 + DEPTH_MAX as usize);
    }
}
