//! Writable layers of containers, and their mounts.
//!
//! A snapshot lives no longer than this boot: it is mounted `volatile`, and no container survives a reboot. So it has
//! no row in the index and costs no fsync; what must be known after a restart of the daemon is its directory's
//! `record.json`.

mod mapped;
mod mount;
mod sampling;
mod volume;

use std::{
    fs,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};

pub use self::mapped::{IdMap, IdRange};
pub(crate) use self::sampling::{Sampler, start as start_sampling};
use crate::{
    Digest, Error, Store, Usage,
    error::at,
    state::{MountedImage, Snapshot},
    store::Inner,
    unpack::remove_path,
};

/// Most bytes of a record.
const RECORD_MAX: u64 = 1 << 20;
/// Name of a layer without files.
const EMPTY: &str = "empty";
/// And of another: without an upper directory overlayfs wants two.
const EMPTY_TOO: &str = "empty-too";

/// How the files of a mount look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Appearance<'a> {
    /// Owned as in a user namespace with this map: shown through an id-mapped mount.
    pub map: Option<&'a IdMap>,
    /// The label of all of them, where the kernel has SELinux: `system_u:object_r:container_file_t:s0:c1,c2`.
    pub label: Option<&'a str>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    image: Digest,
    top: Option<Digest>,
    /// All of the image's layers, lowest first: in use whatever the index knows.
    #[serde(default)]
    layers: Vec<Digest>,
    #[serde(default)]
    volumes: Vec<MountedImage>,
    /// Boot id of when it was made.
    #[serde(default)]
    boot: Option<String>,
}

impl Store {
    /// Makes the writable layer of a container. For a key that has one of the same image already, does nothing.
    ///
    /// # Errors
    /// The image is not here, the key is no plain file name, or it belongs to another image.
    pub fn prepare(&self, key: &str, image_id: &str) -> Result<(), Error> {
        self.prepare_mapped(key, image_id, None)
    }

    /// The same for a container in a user namespace with this map: the root directory is owned as there.
    ///
    /// # Errors
    /// As [`Store::prepare`].
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
            let known = state.images.get(&id).ok_or_else(|| name(Error::not_found("it was just removed")))?;
            let layers: Vec<Digest> = known.record.layers.iter().map(|layer| layer.chain.clone()).collect();
            let top = layers.last().cloned();
            let snapshot = Snapshot { image: id, top, layers, volumes: Vec::new(), usage: Usage::default() };
            // From here on its layers are in use.
            state.snapshots.insert(key.to_owned(), snapshot.clone());
            snapshot
        };
        self.inner.make_snapshot(key, &snapshot, map).map_err(|error| {
            self.inner.state.lock().snapshots.remove(key);
            name(error)
        })
    }

    /// The snapshot as a detached overlay mount (`volatile`), never attached to this mount namespace. The container's
    /// monitor attaches it. At most one such mount of a key may be in use at a time.
    ///
    /// Needs Linux 6.8 for more layers than fit in 255 bytes of the numbers of descriptors (some fifty).
    ///
    /// # Errors
    /// The snapshot or one of its layers is not there, or the kernel refuses; names both and the way out.
    pub fn mount(&self, key: &str, readonly: bool) -> Result<OwnedFd, Error> {
        self.mount_as(key, readonly, &Appearance::default())
    }

    /// The same, its files looking so; none of them is changed. For a map the snapshot was made by
    /// [`Store::prepare_mapped`].
    ///
    /// Needs Linux 6.13 to be seen by nobody, 5.19 at all, and a file system that can be id-mapped.
    ///
    /// # Errors
    /// As [`Store::mount`].
    pub fn mount_as(&self, key: &str, readonly: bool, appearance: &Appearance<'_>) -> Result<OwnedFd, Error> {
        let missing = || Error::not_found(format!("mount snapshot {key}: no such snapshot; prepare it first"));
        let layers = {
            let state = self.inner.state.lock();
            let snapshot = state.snapshots.get(key).ok_or_else(missing)?;
            state.chain(snapshot.top.as_ref()).map_err(|layer| {
                Error::corrupt(format!(
                    "mount snapshot {key}: layer {layer} of image {} is gone; pull the image again",
                    snapshot.image
                ))
            })?
        };
        let mut lower: Vec<PathBuf> = layers.iter().rev().map(|layer| self.inner.layer_path(layer)).collect();
        if lower.is_empty() {
            lower.push(self.inner.empty_layer(EMPTY)?);
        }
        mount::overlay(key, &self.inner.lower(&lower, appearance), &self.inner.snapshot_path(key), readonly)
    }

    /// Whether images can be shown as a user namespace's here: tries it with an empty one.
    ///
    /// # Errors
    /// What is missing.
    pub fn probe_id_map(&self, map: &IdMap) -> Result<(), Error> {
        let lower =
            [EMPTY, EMPTY_TOO].map(|name| self.inner.empty_layer(name)).into_iter().collect::<Result<Vec<_>, _>>()?;
        let told = |(what, cause)| Error::system(format!("try an overlay of id-mapped layers: {what}: {cause}"));
        volume::overlay(&self.inner.lower(&lower, &Appearance { map: Some(map), label: None })).map(drop).map_err(told)
    }

    /// Removes the writable layer; unknown keys succeed. Layers that were kept for it alone are freed in the
    /// background.
    ///
    /// # Errors
    /// The disk failed.
    pub fn discard(&self, key: &str) -> Result<(), Error> {
        if check_key(key).is_err() {
            return Ok(());
        }
        let path = self.inner.snapshot_path(key);
        // In this order: one that is just being made sees that it is no longer known. See `Inner::make_snapshot`.
        let removed = self.inner.state.lock().snapshots.remove(key);
        if let Err(error) = self.inner.trash.take(&path) {
            if let Some(snapshot) = removed {
                self.inner.state.lock().snapshots.entry(key.to_owned()).or_insert(snapshot);
            }
            return Err(error);
        }
        let orphaned = {
            let mut state = self.inner.state.lock();
            let unreadable = state.unreadable.remove(key);
            match removed {
                Some(snapshot) => {
                    if state.needs_damaged(&snapshot) {
                        self.inner.wake_keeper();
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

    /// Keys of the writable layers that exist.
    #[must_use]
    pub fn snapshots(&self) -> Vec<String> {
        let state = self.inner.state.lock();
        let mut keys: Vec<_> =
            state.snapshots.keys().chain(state.unreadable.iter().filter(|key| !key.is_empty())).cloned().collect();
        keys.sort();
        keys
    }

    /// Bytes and inodes of one writable layer, as sampled last in the background; nothing for an unknown key.
    #[must_use]
    pub fn snapshot_usage(&self, key: &str) -> Usage {
        self.inner.state.lock().snapshots.get(key).map(|snapshot| snapshot.usage).unwrap_or_default()
    }

    /// Directory of the writable layer.
    #[must_use]
    pub fn upper(&self, key: &str) -> PathBuf {
        self.inner.snapshot_path(key).join("upper")
    }
}

/// A key is a file name: container ids are.
fn check_key(key: &str) -> Result<(), Error> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    match (1..=128).contains(&key.len()) && key.bytes().all(plain) && !key.starts_with('.') {
        true => Ok(()),
        false => Err(Error::invalid("a key is 1 to 128 of [A-Za-z0-9_.-], not led by a dot")),
    }
}

impl Inner {
    pub(crate) fn snapshot_path(&self, key: &str) -> PathBuf {
        self.root.join("snapshots").join(key)
    }

    /// Made aside and renamed: a snapshot that is there is whole. One that was discarded in the meantime is removed:
    /// its caller may have given up waiting for the disk.
    fn make_snapshot(&self, key: &str, snapshot: &Snapshot, map: Option<&IdMap>) -> Result<(), Error> {
        let aside = self.content.temporary("snapshot");
        let made = self.fill_snapshot(&aside, snapshot, map).and_then(|()| {
            let path = self.snapshot_path(key);
            fs::rename(&aside, &path).map_err(at("rename to", &path))?;
            if self.state.lock().snapshots.contains_key(key) {
                return Ok(());
            }
            self.trash.take(&path)?;
            Err(Error::unavailable("the snapshot was discarded while it was made"))
        });
        made.inspect_err(|_| {
            let _ = remove_path(&aside);
        })
    }

    fn fill_snapshot(&self, dir: &Path, snapshot: &Snapshot, map: Option<&IdMap>) -> Result<(), Error> {
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o711).create(dir).map_err(at("create", dir))?;
        let (upper, work) = (dir.join("upper"), dir.join("work"));
        builder.mode(0o755).create(&upper).map_err(at("create", &upper))?;
        builder.mode(0o700).create(&work).map_err(at("create", &work))?;
        let owner = |uid, gid| map.map_or((uid, gid), |map| map.owner(uid, gid));
        // The upper directory is the container's root directory.
        if let Some(top) = &snapshot.top {
            let layer = self.layer_path(top);
            let like = fs::symlink_metadata(&layer).map_err(at("read", &layer))?;
            let (uid, gid) = owner(like.uid(), like.gid());
            chown(&upper, Some(uid), Some(gid)).map_err(at("set the owner of", &upper))?;
            let mode = fs::Permissions::from_mode(like.mode() & 0o7777);
            fs::set_permissions(&upper, mode).map_err(at("set the mode of", &upper))?;
        } else if map.is_some() {
            let (uid, gid) = owner(0, 0);
            chown(&upper, Some(uid), Some(gid)).map_err(at("set the owner of", &upper))?;
        }
        self.write_record(dir, snapshot)
    }

    fn write_record(&self, dir: &Path, snapshot: &Snapshot) -> Result<(), Error> {
        let Snapshot { image, top, layers, volumes, .. } = snapshot.clone();
        let (beside, path) = (dir.join("record.new"), dir.join("record.json"));
        let boot = Some(self.state.lock().boot.clone());
        let record = Record { image, top, layers, volumes, boot };
        let text = serde_json::to_vec(&record).map_err(at("encode", &path))?;
        fs::write(&beside, text).map_err(at("write", &beside))?;
        fs::rename(&beside, &path).map_err(at("rename to", &path))
    }

    /// These layers, as they are or as a user namespace's.
    fn lower<'a>(&self, paths: &'a [PathBuf], appearance: &Appearance<'a>) -> mount::Lower<'a> {
        let point = || {
            let name = self.content.temporary("layers");
            self.root.join(mapped::POINTS).join(name.file_name().unwrap_or_default())
        };
        mount::Lower { paths, map: appearance.map.map(|map| (map, point())), label: appearance.label }
    }

    /// What stands below an image without layers: overlayfs wants one.
    fn empty_layer(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.root.join("layers").join(name);
        match fs::DirBuilder::new().mode(0o755).create(&path) {
            Err(cause) if cause.kind() != std::io::ErrorKind::AlreadyExists => Err(at("create", &path)(cause)),
            _ => Ok(path),
        }
    }
}

/// Finds the snapshots of this boot; those of an earlier one go. One whose record cannot be read stays, and with it
/// every layer. `rebooted` is what the index says, for records of older versions.
pub(crate) fn recover(store: &Inner, rebooted: bool) -> Result<(), Error> {
    mapped::recover(&store.root);
    let dir = store.root.join("snapshots");
    for entry in fs::read_dir(&dir).map_err(at("list", &dir))? {
        let path = entry.map_err(at("list", &dir))?.path();
        let key = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match read_record(&path) {
            Ok(record) => {
                let old = match &record.boot {
                    Some(boot) => *boot != store.state.lock().boot,
                    None => rebooted,
                };
                match old {
                    true => store.trash.take(&path)?,
                    false => drop(store.state.lock().snapshots.insert(key, record.into_snapshot())),
                }
            }
            Err(RecordError::Missing) => store.trash.take(&path)?,
            Err(RecordError::Unreadable(why)) => {
                tracing::warn!("snapshot {key}: {why}; kept, and no layer is removed until it can be read");
                store.state.lock().unreadable.insert(key);
            }
        }
    }
    Ok(())
}

/// Reads the records again that could not be read. Returns whether there are others left.
pub(crate) fn retry_unreadable(store: &Inner) -> bool {
    let keys: Vec<String> = store.state.lock().unreadable.iter().cloned().collect();
    for key in &keys {
        // Not even the directory could be read.
        if key.is_empty() {
            if recover(store, false).is_ok() {
                store.state.lock().unreadable.remove(key);
            }
            continue;
        }
        if let Ok(record) = read_record(&store.snapshot_path(key)) {
            let mut state = store.state.lock();
            if state.unreadable.remove(key) {
                state.snapshots.insert(key.clone(), record.into_snapshot());
            }
        }
    }
    !store.state.lock().unreadable.is_empty()
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
    // With room for all of it, it is one read and one that finds the end.
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
