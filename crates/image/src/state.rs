//! What the store knows, in memory: the answer to every question that must not wait for a disk.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    Digest, Image, ImageConfig, Usage,
    index::{Everything, ImageRecord, LayerRecord},
    superseded::Superseded,
};

/// An image with its parsed configuration.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) record: Arc<ImageRecord>,
    pub(crate) config: Arc<ImageConfig>,
    pub(crate) raw: Arc<serde_json::Value>,
}

/// A writable layer.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) image: Digest,
    /// Uppermost of the image's layers; none: an image without layers.
    pub(crate) top: Option<Digest>,
    /// All of the image's layers, lowest first. Snapshots made by older versions have none here.
    pub(crate) layers: Vec<Digest>,
    /// Images mounted next to it, as volumes.
    pub(crate) volumes: Vec<MountedImage>,
    pub(crate) usage: Usage,
}

/// An image whose layers are shown as a volume.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct MountedImage {
    pub(crate) image: Digest,
    /// Its uppermost layer; none: an image without layers.
    pub(crate) top: Option<Digest>,
    /// All of its layers, lowest first.
    #[serde(default)]
    pub(crate) layers: Vec<Digest>,
}

/// An image that is not shown.
#[derive(Clone, Debug)]
pub(crate) struct Incomplete {
    pub(crate) record: ImageRecord,
    /// The names it has again once it is whole.
    pub(crate) names: Vec<String>,
}

impl Snapshot {
    /// Images it needs.
    pub(crate) fn images(&self) -> impl Iterator<Item = &Digest> {
        std::iter::once(&self.image).chain(self.volumes.iter().map(|volume| &volume.image))
    }

    /// Chains of layers that it needs, each lowest first.
    pub(crate) fn chains(&self) -> impl Iterator<Item = &[Digest]> {
        std::iter::once(self.layers.as_slice()).chain(self.volumes.iter().map(|volume| volume.layers.as_slice()))
    }

    fn tops(&self) -> impl Iterator<Item = &Digest> {
        self.top.iter().chain(self.volumes.iter().filter_map(|volume| volume.top.as_ref()))
    }
}

/// Layers by chain, and blobs.
#[derive(Default)]
pub(crate) struct Verified {
    pub(crate) layers: HashSet<Digest>,
    pub(crate) blobs: HashSet<Digest>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) images: HashMap<Digest, Known>,
    /// Images of which something was lost: not shown, but kept until they are whole again.
    pub(crate) incomplete: HashMap<Digest, Incomplete>,
    /// Full names (`host/repository:tag` and `host/repository@digest`) and the images they mean.
    pub(crate) names: BTreeMap<String, Digest>,
    pub(crate) layers: HashMap<Digest, LayerRecord>,
    /// Layers that are listed and could not be opened for another reason than that they are gone.
    pub(crate) unknown: HashSet<Digest>,
    /// Directories of damaged layers that containers may still be mounted on.
    pub(crate) superseded: Vec<Superseded>,
    /// What was compared with its digest since the store was opened, and is what it should be.
    pub(crate) verified: Verified,
    pub(crate) snapshots: HashMap<String, Snapshot>,
    /// Snapshots whose record could not be read: while there are any, every layer may be in use.
    pub(crate) unreadable: HashSet<String>,
    pub(crate) boot: String,
    /// Whether this lists everything that the store has. Unset while a rebuilt index may lack what could not be read:
    /// then nothing is removed, and the next opening rebuilds the index again.
    pub(crate) complete: bool,
    /// Layers and blobs are still to be compared with their digests.
    pub(crate) verify: bool,
    /// Blobs and layers that running operations need, with the number of those.
    leases: HashMap<Digest, usize>,
}

/// The state behind its lock, which is never held while waiting for a disk or a network.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<Mutex<State>>);

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps blobs and layers from being collected until the lease is dropped, whether they are here already or not.
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

/// See [`Shared::lease`].
pub(crate) struct Lease {
    state: Shared,
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

    /// Layers from the lowest to `top`.
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

    /// Layers that an image or a snapshot is made of.
    pub(crate) fn layers_in_use(&self) -> HashSet<Digest> {
        let mut used: HashSet<Digest> =
            self.records().flat_map(|record| record.layers.iter().map(|layer| layer.chain.clone())).collect();
        used.extend(self.layers_in_snapshots());
        if !self.unreadable.is_empty() {
            used.extend(self.layers.keys().cloned());
        }
        used
    }

    /// Layers that a snapshot needs: what its own record lists counts even if nothing else knows it.
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

    /// Keys of the snapshots that need a layer.
    pub(crate) fn users_of(&self, chain: &Digest) -> HashSet<String> {
        let users = self.snapshots.iter().filter(|(_, snapshot)| self.layers_of(snapshot).contains(chain));
        users.map(|(key, _)| key.clone()).collect()
    }

    /// Whether a snapshot needs a damaged layer.
    pub(crate) fn needs_damaged(&self, snapshot: &Snapshot) -> bool {
        self.layers_of(snapshot).iter().any(|chain| self.layers.get(chain).is_some_and(|layer| layer.damaged))
    }

    /// Whether a layer is listed, and not known to be damaged.
    pub(crate) fn has_intact(&self, chain: &Digest) -> bool {
        self.layers.get(chain).is_some_and(|layer| !layer.damaged)
    }

    /// Layers that are to be replaced.
    pub(crate) fn damaged(&self) -> Vec<Digest> {
        self.layers.iter().filter(|(_, layer)| layer.damaged).map(|(chain, _)| chain.clone()).collect()
    }

    /// Blobs that an image is made of.
    pub(crate) fn blobs_in_use(&self) -> HashSet<Digest> {
        self.records().flat_map(|record| record.blobs.iter().cloned()).collect()
    }

    fn records(&self) -> impl Iterator<Item = &ImageRecord> {
        self.images.values().map(|known| &*known.record).chain(self.incomplete.values().map(|image| &image.record))
    }

    /// What the index lists of this.
    pub(crate) fn everything(&self) -> Everything {
        let hidden =
            self.incomplete.iter().flat_map(|(id, image)| image.names.iter().map(|name| (name.clone(), id.clone())));
        Everything {
            names: self.names.iter().map(|(name, id)| (name.clone(), id.clone())).chain(hidden).collect(),
            images: self.records().cloned().collect(),
            layers: self.layers.iter().map(|(chain, layer)| (chain.clone(), layer.clone())).collect(),
            boot: self.complete.then(|| self.boot.clone()),
            closed: false,
            verify: self.verify,
        }
    }

    /// Hides the images that have a layer.
    pub(crate) fn hide_images_with(&mut self, chain: &Digest) -> Vec<ImageRecord> {
        let images = self.images.iter().filter(|(_, known)| known.record.layers.iter().any(|l| l.chain == *chain));
        let images: Vec<Digest> = images.map(|(id, _)| id.clone()).collect();
        images.iter().filter_map(|id| self.hide(id)).collect()
    }

    /// Hides an image.
    pub(crate) fn hide(&mut self, id: &Digest) -> Option<ImageRecord> {
        let known = self.images.remove(id)?;
        let names: Vec<String> =
            self.names.iter().filter(|(_, image)| *image == id).map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| drop(self.names.remove(name)));
        let record = ImageRecord { incomplete: true, ..(*known.record).clone() };
        self.incomplete.insert(id.clone(), Incomplete { record: record.clone(), names });
        Some(record)
    }

    /// Names of an image, hidden or not: tags, digests.
    pub(crate) fn names_of(&self, id: &Digest) -> (Vec<String>, Vec<String>) {
        let names = self.names.iter().filter(|(_, image)| *image == id).map(|(name, _)| name.clone());
        let hidden = self.incomplete.get(id).into_iter().flat_map(|image| image.names.iter().cloned());
        names.chain(hidden).partition(|name| !name.contains('@'))
    }

    /// The hidden image of this full name.
    pub(crate) fn hidden(&self, name: &str) -> Option<&Digest> {
        self.incomplete.iter().find(|(_, image)| image.names.iter().any(|known| known == name)).map(|(id, _)| id)
    }

    pub(crate) fn image(&self, id: &Digest) -> Option<Image> {
        let known = self.images.get(id)?;
        let (repo_tags, repo_digests) = self.names_of(id);
        Some(known.image(repo_tags, repo_digests))
    }

    /// All images, by their first name.
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

impl Known {
    fn image(&self, repo_tags: Vec<String>, repo_digests: Vec<String>) -> Image {
        Image {
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
