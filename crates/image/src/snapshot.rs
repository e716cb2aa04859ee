//! Writable layers of containers, and their mounts.
//!
//! A snapshot does not outlive the boot: it is mounted `volatile`, and no container survives a reboot. So it has no
//! entry in the index and needs no fsync. What a restarted daemon must know about it is in the `record.json` of its
//! directory.

mod id_map;
mod layer_options;
mod mount;
mod sampling;
mod saved;
mod volume;

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};

pub use self::id_map::IdMap;
pub(crate) use self::sampling::start as start_sampling;
use crate::{
    Digest, Error, Store, Usage,
    error::failed_to,
    state::{MountedImage, Snapshot},
    store::Inner,
    unpack::remove_path,
};

/// Largest record, in bytes.
const RECORD_MAX: u64 = 1 << 20;
/// Name of an empty layer.
const EMPTY: &str = "empty";
/// Name of another empty layer: without an upper directory overlayfs requires two.
const EMPTY_TOO: &str = "empty-too";

/// Options of an overlay mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct MountOptions<'a> {
    /// Map of the user namespace in which the mount is used: its layers are id-mapped.
    pub map: Option<&'a IdMap>,
    /// SELinux label of all files, if the kernel has SELinux: `system_u:object_r:container_file_t:s0:c1,c2`.
    pub label: Option<&'a str>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    image: Digest,
    top: Option<Digest>,
    /// All layers of the image, lowest first. They are in use whatever the index lists.
    #[serde(default)]
    layers: Vec<Digest>,
    #[serde(default)]
    volumes: Vec<MountedImage>,
    /// Boot id at its creation.
    #[serde(default)]
    boot: Option<String>,
}

impl Store {
    /// Creates the writable layer of a container. Does nothing if the key has one of the same image already.
    ///
    /// # Errors
    /// The image is not in the store, the key is not a plain file name, or it belongs to another image.
    pub fn prepare(&self, key: &str, image_id: &str) -> Result<(), Error> {
        self.prepare_mapped(key, image_id, None)
    }

    /// Creates the writable layer of a container in a user namespace with this map, whose root owns the root directory.
    /// Otherwise as [`Store::prepare`].
    ///
    /// # Errors
    /// See [`Store::prepare`].
    pub fn prepare_mapped(&self, key: &str, image_id: &str, map: Option<&IdMap>) -> Result<(), Error> {
        let name = |error: Error| error.during(format!("prepare snapshot {key} of image {image_id}"));
        check_key(key).map_err(name)?;
        let id = self.inner.resolve(image_id).map_err(name)?;
        let id = id.ok_or_else(|| name(Error::not_found("no such image; pull it first")))?;
        let snapshot = {
            let mut state = self.inner.state.lock();
            if let Some(old) = state.snapshots.get(key) {
                return match old.image == id {
                    true => Ok(()),
                    false => {
                        Err(name(Error::invalid(format!("the key belongs to image {}; discard it first", old.image))))
                    }
                };
            }
            let known =
                state.images.get(&id).ok_or_else(|| name(Error::not_found("the image was removed in the meantime")))?;
            let layers: Vec<Digest> = known.record.layers.iter().map(|layer| layer.chain.clone()).collect();
            let top = layers.last().cloned();
            let snapshot = Snapshot { image: id, top, layers, volumes: Vec::new(), usage: Usage::default() };
            // From here on its layers are in use.
            state.snapshots.insert(key.to_owned(), snapshot.clone());
            snapshot
        };
        self.inner.create_snapshot(key, &snapshot, map).map_err(|error| {
            self.inner.state.lock().snapshots.remove(key);
            name(error)
        })
    }

    /// Mounts the overlay of a snapshot (`volatile`) and returns it detached. It is never attached to this mount
    /// namespace; the container's monitor attaches it. At most one such mount of a key may be in use at a time.
    ///
    /// More than about fifty layers require Linux 6.8: on older kernels their descriptor numbers must fit in 255 bytes.
    ///
    /// # Errors
    /// The snapshot or one of its layers does not exist, or the kernel refuses. The message names both and what to do.
    pub fn mount(&self, key: &str, readonly: bool) -> Result<OwnedFd, Error> {
        self.mount_with(key, readonly, &MountOptions::default())
    }

    /// Mounts the overlay of a snapshot with options, and returns it detached. No file is changed. For a map the
    /// snapshot must have been created by [`Store::prepare_mapped`].
    ///
    /// A map requires Linux 5.19 and a file system that can be id-mapped. Before Linux 6.13 the layers are visible on
    /// the node for a moment.
    ///
    /// # Errors
    /// See [`Store::mount`].
    pub fn mount_with(&self, key: &str, readonly: bool, options: &MountOptions<'_>) -> Result<OwnedFd, Error> {
        let missing = || Error::not_found(format!("mount snapshot {key}: no such snapshot; prepare it first"));
        let layers = {
            let state = self.inner.state.lock();
            let snapshot = state.snapshots.get(key).ok_or_else(missing)?;
            state.chain(snapshot.top.as_ref()).map_err(|layer| {
                Error::corrupt(format!(
                    "mount snapshot {key}: layer {layer} of image {} is missing; pull the image again",
                    snapshot.image
                ))
            })?
        };
        let mut lower: Vec<PathBuf> = layers.iter().rev().map(|layer| self.inner.layer_path(layer)).collect();
        if lower.is_empty() {
            lower.push(self.inner.empty_layer(EMPTY)?);
        }
        mount::overlay(key, &self.inner.lower(&lower, options), &self.inner.snapshot_path(key), readonly)
    }

    /// Checks that layers can be id-mapped here, by mounting an overlay of empty ones.
    ///
    /// # Errors
    /// The message names what is missing.
    pub fn probe_id_map(&self, map: &IdMap) -> Result<(), Error> {
        let lower =
            [EMPTY, EMPTY_TOO].map(|name| self.inner.empty_layer(name)).into_iter().collect::<Result<Vec<_>, _>>()?;
        let failed =
            |(operation, cause)| Error::system(format!("try an overlay of id-mapped layers: {operation}: {cause}"));
        volume::overlay(&self.inner.lower(&lower, &MountOptions { map: Some(map), label: None }))
            .map(drop)
            .map_err(failed)
    }

    /// Removes a writable layer. Succeeds for unknown keys. Layers that only this one used are removed in the
    /// background.
    ///
    /// # Errors
    /// The disk failed.
    pub fn discard(&self, key: &str) -> Result<(), Error> {
        if check_key(key).is_err() {
            return Ok(());
        }
        let path = self.inner.snapshot_path(key);
        // The state comes first, so that a snapshot that is being created notices that it was discarded. See
        // `Inner::create_snapshot`.
        let removed = self.inner.state.lock().snapshots.remove(key);
        if let Err(error) = self.inner.trash.remove(&path) {
            if let Some(snapshot) = removed {
                self.inner.state.lock().snapshots.entry(key.to_owned()).or_insert(snapshot);
            }
            return Err(error);
        }
        let orphaned = {
            let mut state = self.inner.state.lock();
            let unreadable = state.unreadable_snapshots.remove(key);
            match removed {
                Some(snapshot) => {
                    if state.needs_damaged(&snapshot) {
                        self.inner.wake_repair();
                    }
                    snapshot.images().any(|image| !state.images.contains_key(image))
                }
                None => unreadable,
            }
        };
        self.inner.release_superseded();
        if orphaned {
            self.inner.collect_later();
        }
        Ok(())
    }

    /// Returns the keys of all writable layers, sorted.
    #[must_use]
    pub fn snapshots(&self) -> Vec<String> {
        let state = self.inner.state.lock();
        let mut keys: Vec<_> = state
            .snapshots
            .keys()
            .chain(state.unreadable_snapshots.iter().filter(|key| !key.is_empty()))
            .cloned()
            .collect();
        keys.sort();
        keys
    }

    /// Returns bytes and inodes of a writable layer, as of the last sample in the background; zeros for an unknown key.
    #[must_use]
    pub fn snapshot_usage(&self, key: &str) -> Usage {
        self.inner.state.lock().snapshots.get(key).map(|snapshot| snapshot.usage).unwrap_or_default()
    }

    /// Returns the upper directory of a writable layer.
    #[must_use]
    pub fn upper(&self, key: &str) -> PathBuf {
        self.inner.snapshot_path(key).join("upper")
    }
}

/// Checks that a key is a plain file name, as container ids are.
fn check_key(key: &str) -> Result<(), Error> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    match (1..=128).contains(&key.len()) && key.bytes().all(plain) && !key.starts_with('.') {
        true => Ok(()),
        false => Err(Error::invalid("a key has 1 to 128 characters of [A-Za-z0-9_.-] and does not start with a dot")),
    }
}

impl Inner {
    pub(crate) fn snapshot_path(&self, key: &str) -> PathBuf {
        self.root.join("snapshots").join(key)
    }

    /// Creates a snapshot under a temporary name and renames it, so that every visible snapshot is complete. If it was
    /// discarded in the meantime it is removed: its caller may have stopped waiting for the disk.
    fn create_snapshot(&self, key: &str, snapshot: &Snapshot, map: Option<&IdMap>) -> Result<(), Error> {
        let temporary = self.content.temporary("snapshot");
        let result = self.fill_snapshot(&temporary, snapshot, map).and_then(|()| {
            let path = self.snapshot_path(key);
            fs::rename(&temporary, &path).map_err(failed_to("rename to", &path))?;
            if self.state.lock().snapshots.contains_key(key) {
                return Ok(());
            }
            self.trash.remove(&path)?;
            Err(Error::unavailable("the snapshot was discarded while it was created"))
        });
        result.inspect_err(|_| {
            let _ = remove_path(&temporary);
        })
    }

    fn fill_snapshot(&self, dir: &Path, snapshot: &Snapshot, map: Option<&IdMap>) -> Result<(), Error> {
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o711).create(dir).map_err(failed_to("create", dir))?;
        let (upper, work) = (dir.join("upper"), dir.join("work"));
        builder.mode(0o755).create(&upper).map_err(failed_to("create", &upper))?;
        builder.mode(0o700).create(&work).map_err(failed_to("create", &work))?;
        let owner = |uid, gid| map.map_or((uid, gid), |map| map.owner(uid, gid));
        // The upper directory is the container's root directory.
        if let Some(top) = &snapshot.top {
            let layer = self.layer_path(top);
            let metadata = fs::symlink_metadata(&layer).map_err(failed_to("read", &layer))?;
            let (uid, gid) = owner(metadata.uid(), metadata.gid());
            chown(&upper, Some(uid), Some(gid)).map_err(failed_to("set the owner of", &upper))?;
            let mode = fs::Permissions::from_mode(metadata.mode() & 0o7777);
            fs::set_permissions(&upper, mode).map_err(failed_to("set the mode of", &upper))?;
        } else if map.is_some() {
            let (uid, gid) = owner(0, 0);
            chown(&upper, Some(uid), Some(gid)).map_err(failed_to("set the owner of", &upper))?;
        }
        self.write_record(dir, snapshot)
    }

    fn write_record(&self, dir: &Path, snapshot: &Snapshot) -> Result<(), Error> {
        let Snapshot { image, top, layers, volumes, .. } = snapshot.clone();
        let (temporary, path) = (dir.join("record.new"), dir.join("record.json"));
        let boot = Some(self.state.lock().boot.clone());
        let record = Record { image, top, layers, volumes, boot };
        let text = serde_json::to_vec(&record).map_err(failed_to("encode", &path))?;
        fs::write(&temporary, text).map_err(failed_to("write", &temporary))?;
        fs::rename(&temporary, &path).map_err(failed_to("rename to", &path))
    }

    /// Returns the description of these layers for an overlay with these options.
    fn lower<'a>(&self, paths: &'a [PathBuf], options: &MountOptions<'a>) -> mount::LowerLayers<'a> {
        let point = || {
            let name = self.content.temporary("layers");
            self.root.join(id_map::MOUNT_POINTS).join(name.file_name().unwrap_or_default())
        };
        mount::LowerLayers { paths, map: options.map.map(|map| (map, point())), label: options.label }
    }

    /// Creates an empty layer and returns its path. Overlayfs requires one below an image without layers.
    fn empty_layer(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.root.join("layers").join(name);
        match fs::DirBuilder::new().mode(0o755).create(&path) {
            Err(cause) if cause.kind() != std::io::ErrorKind::AlreadyExists => Err(failed_to("create", &path)(cause)),
            _ => Ok(path),
        }
    }
}

/// Lists the snapshots of this boot, and removes those of an earlier one. A snapshot whose record cannot be read is
/// kept, and so is every layer. `rebooted` is what the index indicates, for records of older versions.
pub(crate) fn recover(store: &Inner, rebooted: bool) -> Result<(), Error> {
    id_map::recover(&store.root);
    let dir = store.root.join("snapshots");
    for entry in fs::read_dir(&dir).map_err(failed_to("list", &dir))? {
        let path = entry.map_err(failed_to("list", &dir))?.path();
        let key = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match read_record(&path) {
            Ok(record) => {
                let old = match &record.boot {
                    Some(boot) => *boot != store.state.lock().boot,
                    None => rebooted,
                };
                match old {
                    true => store.trash.remove(&path)?,
                    false => drop(store.state.lock().snapshots.insert(key, record.into_snapshot())),
                }
            }
            Err(RecordError::Missing) => store.trash.remove(&path)?,
            Err(RecordError::Unreadable(reason)) => {
                tracing::warn!("snapshot {key}: {reason}; kept, and no layer is removed until it can be read");
                store.state.lock().unreadable_snapshots.insert(key);
            }
        }
    }
    Ok(())
}

/// Retries to read the records that could not be read. Returns whether any are left.
pub(crate) fn retry_unreadable(store: &Inner) -> bool {
    let keys: Vec<String> = store.state.lock().unreadable_snapshots.iter().cloned().collect();
    for key in &keys {
        // The empty key means that not even the directory could be read.
        if key.is_empty() {
            if recover(store, false).is_ok() {
                store.state.lock().unreadable_snapshots.remove(key);
            }
            continue;
        }
        if let Ok(record) = read_record(&store.snapshot_path(key)) {
            let mut state = store.state.lock();
            if state.unreadable_snapshots.remove(key) {
                state.snapshots.insert(key.clone(), record.into_snapshot());
            }
        }
    }
    !store.state.lock().unreadable_snapshots.is_empty()
}

impl Record {
    fn into_snapshot(self) -> Snapshot {
        let Self { image, top, layers, volumes, .. } = self;
        Snapshot { image, top, layers, volumes, usage: Usage::default() }
    }
}

enum RecordError {
    Missing,
    Unreadable(String),
}

fn read_record(dir: &Path) -> Result<Record, RecordError> {
    use std::io::Read;
    let unreadable = |cause: &dyn std::fmt::Display| RecordError::Unreadable(format!("read record.json: {cause}"));
    // With enough capacity this takes one read, and one that finds the end.
    let mut text = Vec::with_capacity(4096);
    let file = fs::File::open(dir.join("record.json")).map_err(|cause| match cause.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => RecordError::Missing,
        _ => unreadable(&cause),
    })?;
    file.take(RECORD_MAX).read_to_end(&mut text).map_err(|cause| unreadable(&cause))?;
    serde_json::from_slice(&text).map_err(|cause| unreadable(&cause))
}

#[cfg(test)]
mod tests;
