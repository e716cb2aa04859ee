//! The state of the store in memory, which answers every query that must not wait for a disk.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    Digest, Image, ImageConfig, Usage,
    index::{ImageRecord, IndexContents, LayerRecord},
};

/// An image with its parsed configuration.
#[derive(Clone)]
pub(crate) struct StoredImage {
    pub(crate) record: Arc<ImageRecord>,
    pub(crate) config: Arc<ImageConfig>,
    pub(crate) raw: Arc<serde_json::Value>,
}

/// A writable layer.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) image: Digest,
    /// Uppermost layer of the image; `None` for an image without layers.
    pub(crate) top: Option<Digest>,
    /// All layers of the image, lowest first; empty for snapshots that older versions created.
    pub(crate) layers: Vec<Digest>,
    /// Images mounted next to it, as volumes.
    pub(crate) volumes: Vec<MountedImage>,
    pub(crate) usage: Usage,
}

/// An image whose layers are mounted as a volume.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct MountedImage {
    pub(crate) image: Digest,
    /// Uppermost layer of the image; `None` for an image without layers.
    pub(crate) top: Option<Digest>,
    /// All layers of the image, lowest first.
    #[serde(default)]
    pub(crate) layers: Vec<Digest>,
}

/// An image that is hidden because something of it is missing.
#[derive(Clone, Debug)]
pub(crate) struct IncompleteImage {
    pub(crate) record: ImageRecord,
    /// Names that it gets back when it is complete.
    pub(crate) names: Vec<String>,
}

/// The directory of a damaged layer that was replaced.
#[derive(Debug)]
pub(crate) struct SupersededLayer {
    pub(crate) path: PathBuf,
    /// Snapshots that may be mounted on it.
    pub(crate) keys: HashSet<String>,
}

impl Snapshot {
    /// Returns the images that it uses.
    pub(crate) fn images(&self) -> impl Iterator<Item = &Digest> {
        std::iter::once(&self.image).chain(self.volumes.iter().map(|volume| &volume.image))
    }

    /// Returns the chains of layers that it uses, each lowest first.
    pub(crate) fn chains(&self) -> impl Iterator<Item = &[Digest]> {
        std::iter::once(self.layers.as_slice()).chain(self.volumes.iter().map(|volume| volume.layers.as_slice()))
    }

    fn tops(&self) -> impl Iterator<Item = &Digest> {
        self.top.iter().chain(self.volumes.iter().filter_map(|volume| volume.top.as_ref()))
    }
}

/// Digests that were verified: chain ids of layers, and blobs.
#[derive(Default)]
pub(crate) struct VerifiedDigests {
    pub(crate) layers: HashSet<Digest>,
    pub(crate) blobs: HashSet<Digest>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) images: HashMap<Digest, StoredImage>,
    /// Images of which something was lost: hidden, but kept until they are complete again.
    pub(crate) incomplete: HashMap<Digest, IncompleteImage>,
    /// Full names (`host/repository:tag` and `host/repository@digest`) and the ids of their images.
    pub(crate) names: BTreeMap<String, Digest>,
    pub(crate) layers: HashMap<Digest, LayerRecord>,
    /// Listed layers that could not be opened for a reason other than that they do not exist.
    pub(crate) inaccessible: HashSet<Digest>,
    /// Directories of damaged layers on which containers may still be mounted.
    pub(crate) superseded: Vec<SupersededLayer>,
    /// Layers and blobs that were verified since the store was opened.
    pub(crate) verified: VerifiedDigests,
    pub(crate) snapshots: HashMap<String, Snapshot>,
    /// Keys of snapshots whose record could not be read. While there are any, every layer may be in use.
    pub(crate) unreadable_snapshots: HashSet<String>,
    pub(crate) boot: String,
    /// Whether this lists everything that the store has. Unset while a rebuilt index may lack what could not be read:
    /// then nothing is removed, and the next opening rebuilds the index again.
    pub(crate) complete: bool,
    /// Whether layers and blobs must still be verified.
    pub(crate) verify: bool,
    /// Blobs and layers that running operations need, with the number of these operations.
    leases: HashMap<Digest, usize>,
}

/// The state behind its lock, which is never held while waiting for a disk or a network.
#[derive(Clone, Default)]
pub(crate) struct SharedState(Arc<Mutex<State>>);

impl SharedState {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Protects blobs and layers from collection until the lease is dropped, whether they exist already or not.
    pub(crate) fn lease(&self, digests: impl IntoIterator<Item = Digest>) -> Lease {
        let digests: Vec<_> = digests.into_iter().collect();
        let mut state = self.lock();
        for digest in &digests {
            *state.leases.entry(digest.clone()).or_default() += 1;
        }
        drop(state);
        Lease { state: self.clone(), digests }
    }
}

/// Protects blobs and layers from collection. See [`SharedState::lease`].
pub(crate) struct Lease {
    state: SharedState,
    digests: Vec<Digest>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        for digest in &self.digests {
            if let Some(count) = state.leases.get_mut(digest) {
                *count -= 1;
                if *count == 0 {
                    state.leases.remove(digest);
                }
            }
        }
    }
}

impl State {
    pub(crate) fn leased(&self, digest: &Digest) -> bool {
        self.leases.contains_key(digest)
    }

    /// Returns the layers from the lowest to `top`, or the first layer that is missing.
    pub(crate) fn chain(&self, top: Option<&Digest>) -> Result<Vec<Digest>, Digest> {
        let mut chain = Vec::new();
        let mut next = top.cloned();
        while let Some(digest) = next {
            let layer = self.layers.get(&digest).ok_or_else(|| digest.clone())?;
            next = layer.parent.clone();
            chain.push(digest);
        }
        chain.reverse();
        Ok(chain)
    }

    /// Returns the layers that images and snapshots use.
    pub(crate) fn layers_in_use(&self) -> HashSet<Digest> {
        let mut used: HashSet<Digest> =
            self.records().flat_map(|record| record.layers.iter().map(|layer| layer.chain.clone())).collect();
        used.extend(self.layers_in_snapshots());
        if !self.unreadable_snapshots.is_empty() {
            used.extend(self.layers.keys().cloned());
        }
        used
    }

    /// Returns the layers that snapshots use. A layer that only the record of a snapshot lists counts, too.
    pub(crate) fn layers_in_snapshots(&self) -> HashSet<Digest> {
        self.snapshots.values().flat_map(|snapshot| self.layers_of(snapshot)).collect()
    }

    fn layers_of(&self, snapshot: &Snapshot) -> HashSet<Digest> {
        let mut used: HashSet<Digest> = snapshot.chains().flatten().cloned().collect();
        for top in snapshot.tops() {
            let mut next = Some(top.clone());
            while let Some(digest) = next {
                next = self.layers.get(&digest).and_then(|layer| layer.parent.clone());
                used.insert(digest);
            }
        }
        used
    }

    /// Returns the keys of the snapshots that use a layer.
    pub(crate) fn users_of(&self, chain: &Digest) -> HashSet<String> {
        let users = self.snapshots.iter().filter(|(_, snapshot)| self.layers_of(snapshot).contains(chain));
        users.map(|(key, _)| key.clone()).collect()
    }

    /// Whether a snapshot uses a damaged layer.
    pub(crate) fn needs_damaged(&self, snapshot: &Snapshot) -> bool {
        self.layers_of(snapshot).iter().any(|chain| self.layers.get(chain).is_some_and(|layer| layer.damaged))
    }

    /// Whether a layer is listed, and not known to be damaged.
    pub(crate) fn has_intact(&self, chain: &Digest) -> bool {
        self.layers.get(chain).is_some_and(|layer| !layer.damaged)
    }

    /// Returns the damaged layers, which are to be replaced.
    pub(crate) fn damaged(&self) -> Vec<Digest> {
        self.layers.iter().filter(|(_, layer)| layer.damaged).map(|(chain, _)| chain.clone()).collect()
    }

    /// Returns the blobs that images use.
    pub(crate) fn blobs_in_use(&self) -> HashSet<Digest> {
        self.records().flat_map(|record| record.blobs.iter().cloned()).collect()
    }

    fn records(&self) -> impl Iterator<Item = &ImageRecord> {
        self.images.values().map(|known| &*known.record).chain(self.incomplete.values().map(|image| &image.record))
    }

    /// Returns the contents that the index must have.
    pub(crate) fn index_contents(&self) -> IndexContents {
        let hidden =
            self.incomplete.iter().flat_map(|(id, image)| image.names.iter().map(|name| (name.clone(), id.clone())));
        IndexContents {
            names: self.names.iter().map(|(name, id)| (name.clone(), id.clone())).chain(hidden).collect(),
            images: self.records().cloned().collect(),
            layers: self.layers.iter().map(|(chain, layer)| (chain.clone(), layer.clone())).collect(),
            boot: self.complete.then(|| self.boot.clone()),
            closed: false,
            verify: self.verify,
        }
    }

    /// Hides the images that have a layer. Returns their records.
    pub(crate) fn hide_images_with(&mut self, chain: &Digest) -> Vec<ImageRecord> {
        let images = self.images.iter().filter(|(_, known)| known.record.layers.iter().any(|l| l.chain == *chain));
        let images: Vec<Digest> = images.map(|(id, _)| id.clone()).collect();
        images.iter().filter_map(|id| self.hide(id)).collect()
    }

    /// Hides an image. Returns its record.
    pub(crate) fn hide(&mut self, id: &Digest) -> Option<ImageRecord> {
        let known = self.images.remove(id)?;
        let names: Vec<String> =
            self.names.iter().filter(|(_, image)| *image == id).map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| drop(self.names.remove(name)));
        let record = ImageRecord { incomplete: true, ..(*known.record).clone() };
        self.incomplete.insert(id.clone(), IncompleteImage { record: record.clone(), names });
        Some(record)
    }

    /// Returns the names of an image, hidden or not: tags and digests.
    pub(crate) fn names_of(&self, id: &Digest) -> (Vec<String>, Vec<String>) {
        let names = self.names.iter().filter(|(_, image)| *image == id).map(|(name, _)| name.clone());
        let hidden = self.incomplete.get(id).into_iter().flat_map(|image| image.names.iter().cloned());
        names.chain(hidden).partition(|name| !name.contains('@'))
    }

    /// Returns the hidden image with this full name.
    pub(crate) fn hidden(&self, name: &str) -> Option<&Digest> {
        self.incomplete.iter().find(|(_, image)| image.names.iter().any(|known| known == name)).map(|(id, _)| id)
    }

    pub(crate) fn image(&self, id: &Digest) -> Option<Image> {
        let known = self.images.get(id)?;
        let (repo_tags, repo_digests) = self.names_of(id);
        Some(known.image(repo_tags, repo_digests))
    }

    /// Returns all images, sorted by their first name.
    pub(crate) fn list(&self) -> Vec<Image> {
        let mut names: HashMap<&Digest, (Vec<String>, Vec<String>)> = HashMap::new();
        for (name, id) in &self.names {
            let (tags, digests) = names.entry(id).or_default();
            if name.contains('@') { digests.push(name.clone()) } else { tags.push(name.clone()) }
        }
        let mut images: Vec<_> = self
            .images
            .iter()
            .map(|(id, known)| {
                let (tags, digests) = names.remove(id).unwrap_or_default();
                known.image(tags, digests)
            })
            .collect();
        images.sort_by(|a, b| (&a.repo_tags, &a.id).cmp(&(&b.repo_tags, &b.id)));
        images
    }
}

impl StoredImage {
    fn image(&self, repo_tags: Vec<String>, repo_digests: Vec<String>) -> Image {
        Image {
            annotations: self.record.annotations.clone(),
            id: self.record.id.to_string(),
            repo_tags,
            repo_digests,
            size: self.record.size,
            config: self.config.clone(),
            pinned: false,
            raw_config: self.raw.clone(),
        }
    }
}
