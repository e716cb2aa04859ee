//! Commit of an image: it becomes visible in one step with all of its layers, after everything is on disk.
//!
//! The order is: the bytes of layers, blobs and records (one `syncfs`, however many layers there are), their names (an
//! fsync of each directory), the index (one transaction), the reply. So everything that has its name in `layers/` or
//! among the records is complete, even without the index.

use std::{collections::HashMap, fs, path::Path};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use super::layer::open_directory;
use crate::{
    Digest, Error, Image, durable,
    error::failed_to,
    hooks,
    image::ParsedConfig,
    index::{Change, Form, ImageRecord, LayerRecord},
    state::StoredImage,
    store::Inner,
    transfers::{ReadyLayer, Scratch, UnpackedLayer},
    tree_digest::{Pace, tree_digest},
    unpack::{Attributes, UnpackResult, set_attributes},
    usage::measure,
};

/// A layer of an image that is about to be listed, with its chain id.
pub(crate) type LayerEntry = (Digest, ReadyLayer);

impl Inner {
    /// Finishes an unpacked layer. Directories that its archive only implies get the attributes that they have in the
    /// layers below, because overlayfs shows those of the uppermost one. `lower` is ordered from the lowest.
    pub(super) fn finish_layer(
        &self,
        scratch: Scratch,
        unpacked: &UnpackResult,
        lower: &[LayerEntry],
    ) -> Result<UnpackedLayer, Error> {
        let root = open_directory(&scratch.0)?;
        let lower_directories: Result<Vec<OwnedFd>, Error> =
            lower.iter().rev().map(|(chain, ready)| self.open_layer(chain, ready)).collect();
        let lower_directories = lower_directories?;
        for path in &unpacked.implied {
            let existing = lower_directories.iter().find_map(|layer| attributes(layer, path)).flatten();
            let attributes = existing.unwrap_or(Attributes { mode: 0o755, ..Attributes::default() });
            let printable = String::from_utf8_lossy(path);
            let directory =
                open_at(&root, path).map_err(|cause| Error::system(format!("{printable}: open: {cause}")))?;
            set_attributes(directory.as_fd(), path, &attributes, u32::MAX)?;
        }
        let measured = measure(root.as_fd()).map_err(failed_to("measure", &scratch.0))?;
        let digest = tree_digest(root.as_fd(), Pace::Full).map_err(failed_to("compute the digest of", &scratch.0))?;
        let record = LayerRecord {
            parent: lower.last().map(|(chain, _)| chain.clone()),
            form: Form::Directory,
            usage: measured.usage,
            length: measured.length,
            diff_id: Some(unpacked.diff_id.clone()),
            digest: Some(digest),
            damaged: false,
        };
        Ok(UnpackedLayer { scratch, record })
    }

    /// Opens the directory of a layer, which another pull may have made visible in the meantime.
    fn open_layer(&self, chain: &Digest, ready: &ReadyLayer) -> Result<OwnedFd, Error> {
        match ready {
            // It is renamed back if listing it fails, so the first path is tried twice.
            ReadyLayer::Unpacked(directory) => open_directory(&directory.scratch.0)
                .or_else(|_| open_directory(&self.layer_path(chain)))
                .or_else(|_| open_directory(&directory.scratch.0)),
            ReadyLayer::Listed => open_directory(&self.layer_path(chain)),
        }
    }

    /// Makes an image and its new layers visible at once. `layers` are all layers of the image, lowest first. Fails if
    /// a sync failed since the first byte of a new layer was written. Blocks.
    pub(crate) fn list_image(
        &self,
        record: ImageRecord,
        parsed: ParsedConfig,
        names: Vec<String>,
        layers: Vec<LayerEntry>,
    ) -> Result<Image, Error> {
        let failed_syncs = layers.iter().filter_map(|(_, ready)| ready.failed_syncs()).min();
        self.sync.sync(failed_syncs.unwrap_or_else(|| self.sync.failed_syncs()))?;
        let _writer = self.writer();
        self.list_synced(record, parsed, names, &layers)
    }

    /// Lists a hidden image again with the layers that were unpacked for it, unless it was removed or pulled in the
    /// meantime. Blocks.
    pub(crate) fn list_again(
        &self,
        hidden: ImageRecord,
        parsed: ParsedConfig,
        layers: &[LayerEntry],
    ) -> Result<(), Error> {
        let failed_syncs = layers.iter().filter_map(|(_, ready)| ready.failed_syncs()).min();
        self.sync.sync(failed_syncs.unwrap_or_else(|| self.sync.failed_syncs()))?;
        let _writer = self.writer();
        if self.state.lock().incomplete.contains_key(&hidden.id) {
            let record = ImageRecord { incomplete: false, ..hidden };
            self.list_synced(record, parsed, Vec::new(), layers)?;
        }
        Ok(())
    }

    /// Lists an image whose layers are on disk. The caller holds the writer lock.
    fn list_synced(
        &self,
        mut record: ImageRecord,
        parsed: ParsedConfig,
        mut names: Vec<String>,
        layers: &[LayerEntry],
    ) -> Result<Image, Error> {
        let id = record.id.clone();
        let known: Vec<String> = {
            let state = self.state.lock();
            let lost = |(chain, ready): &&LayerEntry| matches!(ready, ReadyLayer::Listed) && !state.has_intact(chain);
            if let Some((chain, _)) = layers.iter().find(lost) {
                let reason = "found to be damaged in the meantime; pull the image again";
                return Err(Error::unavailable(format!("layer {chain}: {reason}")));
            }
            if let Some(known) = state.images.get(&id) {
                record.blobs.extend(known.record.blobs.iter().cloned());
            }
            let (tags, digests) = state.names_of(&id);
            let hidden = state.incomplete.get(&id).map(|image| image.names.clone()).unwrap_or_default();
            names.extend(hidden);
            tags.into_iter().chain(digests).collect()
        };
        let (mut new, losing) = (Vec::new(), self.losing_names(&names, &id));
        let listed = self.rename_layers(layers, &mut new).and_then(|()| {
            self.write_records(&record, &names, known, &new, &losing)?;
            self.commit(&Change {
                put_names: names.iter().map(|name| (name.clone(), id.clone())).collect(),
                put_images: vec![record.clone()],
                put_layers: new.clone(),
                ..Change::default()
            })
        });
        if let Err(error) = listed {
            // A directory that replaced a damaged layer stays.
            new.retain(|(chain, _)| !self.state.lock().layers.contains_key(chain));
            self.withdraw_layers(layers, &new);
            self.restore_records(&id, &new, losing.keys());
            return Err(error);
        }
        let mut state = self.state.lock();
        state.layers.extend(new);
        state.incomplete.remove(&id);
        state.incomplete.values_mut().for_each(|image| image.names.retain(|name| !names.contains(name)));
        names.into_iter().for_each(|name| drop(state.names.insert(name, id.clone())));
        let known = StoredImage { record: record.into(), config: parsed.config.into(), raw: parsed.raw.into() };
        state.images.insert(id.clone(), known);
        state.image(&id).ok_or_else(|| Error::system(format!("image {id}: it is not listed after its commit")))
    }

    /// Syncs the names of new layers, then writes and syncs all records. The image that gets a name is written before
    /// the one that loses it, so that the name is never lost.
    fn write_records(
        &self,
        record: &ImageRecord,
        names: &[String],
        mut known: Vec<String>,
        new: &[(Digest, LayerRecord)],
        losing: &HashMap<Digest, (ImageRecord, Vec<String>)>,
    ) -> Result<(), Error> {
        durable::sync_directory(&self.root.join("layers"))?;
        new.iter().try_for_each(|(chain, layer)| self.records.put_layer(chain, layer))?;
        known.extend(names.iter().cloned());
        known.sort();
        known.dedup();
        self.records.put_image(record, known)?;
        for (image, remaining) in losing.values() {
            self.records.put_image(image, remaining.clone())?;
        }
        self.records.sync()
    }

    /// Restores the records to what the index lists, after the index could not be changed.
    fn restore_records<'a>(
        &self,
        id: &'a Digest,
        new: &[(Digest, LayerRecord)],
        losing: impl Iterator<Item = &'a Digest>,
    ) {
        let known = {
            let state = self.state.lock();
            state.images.contains_key(id) || state.incomplete.contains_key(id)
        };
        let dropped = if known { Ok(()) } else { self.records.drop_image(id) };
        let layers = new.iter().try_for_each(|(chain, _)| self.records.drop_layer(chain));
        let names = self.write_names(losing.chain([id]));
        if let Err(error) = dropped.and(layers).and(names) {
            tracing::warn!("restore the records of image {id}: {error}");
        }
    }

    /// Renames unpacked layers to their final names, and adds each to `new`, also if a later one fails. The caller
    /// holds the writer lock.
    fn rename_layers(&self, layers: &[LayerEntry], new: &mut Vec<(Digest, LayerRecord)>) -> Result<(), Error> {
        for (chain, ready) in layers {
            let ReadyLayer::Unpacked(directory) = ready else { continue };
            let damaged = self.state.lock().layers.get(chain).map(|layer| layer.damaged);
            match damaged {
                Some(false) => continue,
                Some(true) => self.supersede(chain, &directory.scratch.0, &directory.record)?,
                None => {
                    let path = self.layer_path(chain);
                    self.remove_leftover(chain, &path)?;
                    fs::rename(&directory.scratch.0, &path).map_err(failed_to("rename to", &path))?;
                    hooks::reached("layer renamed");
                }
            }
            new.push((chain.clone(), directory.record.clone()));
        }
        Ok(())
    }

    /// Renames layers that could not be listed back: another pull may be about to list the same directory, and the last
    /// one removes it. The caller holds the writer lock.
    fn withdraw_layers(&self, layers: &[LayerEntry], new: &[(Digest, LayerRecord)]) {
        for (chain, ready) in layers {
            let ReadyLayer::Unpacked(directory) = ready else { continue };
            if !new.iter().any(|(renamed, _)| renamed == chain) {
                continue;
            }
            let path = self.layer_path(chain);
            if fs::rename(&path, &directory.scratch.0).is_err()
                && let Err(error) = self.trash.remove(&path)
            {
                tracing::warn!("layer {chain}: it could not be listed, and removing it failed: {error}");
            }
        }
    }

    /// Removes a leftover that the index does not list.
    fn remove_leftover(&self, chain: &Digest, path: &Path) -> Result<(), Error> {
        let state = self.state.lock();
        let used = !state.unreadable_snapshots.is_empty() || state.layers_in_snapshots().contains(chain);
        drop(state);
        match used && path.exists() {
            true => {
                Err(Error::system(format!("replace {}: a container uses it; remove the container", path.display())))
            }
            false => self.trash.remove(path),
        }
    }
}

fn open_at(root: &OwnedFd, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(root, if path.is_empty() { b"." } else { path }, flags, Mode::empty(), resolve)
}

/// Returns the attributes of a directory in a layer: `None` if nothing exists at `path`, `Some(None)` if it is not a
/// directory.
fn attributes(layer: &OwnedFd, path: &[u8]) -> Option<Option<Attributes>> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let at = if path.is_empty() { b"." } else { path };
    let fd = match rustix::fs::openat2(layer, at, flags, Mode::empty(), resolve) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return None,
        Err(_) => return Some(None),
    };
    let stat = rustix::fs::statat(&fd, c"", AtFlags::EMPTY_PATH).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Some(None);
    }
    Some(Some(Attributes {
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
        xattrs: Vec::new(),
    }))
}
