//! Copies of the records of the index: one small file per image (with its names) and per layer, in the content store.
//!
//! ```text
//! content/records/image-<hex>   {"sequence": …, "names": […], "image": …}
//!                 layer-<hex>   {"parent": …, "diff_id": …, …}
//! ```
//!
//! The first line of a file is the sha256 digest of the rest. A file is on disk before the index lists what it
//! describes, and it is removed after the index no longer lists it, so that the index can be rebuilt from these files
//! only.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Digest, Error, ErrorKind, durable,
    error::failed_to,
    index::{ImageRecord, IndexContents, LayerRecord},
};

/// Largest file that is read, in bytes.
const SIZE_MAX: u64 = 16 << 20;

/// An image with its names.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ImageFile {
    /// Grows with every write: if two images claim a name, it belongs to the one with the higher number.
    sequence: u64,
    names: Vec<String>,
    image: ImageRecord,
}

/// The directory of these record files.
pub(crate) struct Records {
    dir: PathBuf,
    last: AtomicU64,
}

impl Records {
    pub(crate) fn open(dir: PathBuf) -> Result<Self, Error> {
        fs::create_dir_all(&dir).map_err(failed_to("create", &dir))?;
        Ok(Self { dir, last: AtomicU64::new(0) })
    }

    /// Writes the record of an image with all of its names. The bytes are on disk when this returns, the name of the
    /// file after [`Records::sync`].
    pub(crate) fn put_image(&self, image: &ImageRecord, names: Vec<String>) -> Result<(), Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let last = self.last.fetch_max(now, Ordering::SeqCst);
        let sequence = if now > last { now } else { self.last.fetch_add(1, Ordering::SeqCst) + 1 };
        durable::place(&self.image_path(&image.id), &encode(&ImageFile { sequence, names, image: image.clone() })?)
    }

    /// Writes the record of a layer. The bytes are on disk when this returns, the name of the file after
    /// [`Records::sync`].
    pub(crate) fn put_layer(&self, chain: &Digest, layer: &LayerRecord) -> Result<(), Error> {
        durable::place(&self.layer_path(chain), &encode(layer)?)
    }

    pub(crate) fn drop_image(&self, id: &Digest) -> Result<(), Error> {
        remove(&self.image_path(id))
    }

    pub(crate) fn drop_layer(&self, chain: &Digest) -> Result<(), Error> {
        remove(&self.layer_path(chain))
    }

    /// Syncs the directory, so that records that were written or removed are so on disk.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        durable::sync_directory(&self.dir)
    }

    fn image_path(&self, id: &Digest) -> PathBuf {
        self.dir.join(format!("image-{}", id.hex()))
    }

    fn layer_path(&self, chain: &Digest) -> PathBuf {
        self.dir.join(format!("layer-{}", chain.hex()))
    }

    /// Reads all files. Returns what they describe, and whether all of them could be read. Damaged files are ignored,
    /// with a warning in the log.
    pub(crate) fn read(&self) -> Result<(IndexContents, bool), Error> {
        let (mut all, mut complete) = (IndexContents::default(), true);
        let mut leave_out = |error: Error| {
            complete &= error.kind == ErrorKind::Corrupt;
            tracing::warn!("{error}; ignored");
        };
        let mut names: BTreeMap<String, (u64, Digest)> = BTreeMap::new();
        for entry in fs::read_dir(&self.dir).map_err(failed_to("list", &self.dir))? {
            let path = entry.map_err(failed_to("list", &self.dir))?.path();
            match parse_name(&path) {
                Some(("image", id)) => match decode::<ImageFile>(&path) {
                    Ok(file) if file.image.id == id => {
                        for name in file.names {
                            let owner = names.entry(name).or_insert_with(|| (0, id.clone()));
                            if file.sequence >= owner.0 {
                                *owner = (file.sequence, id.clone());
                            }
                        }
                        all.images.push(file.image);
                    }
                    Ok(_) => tracing::warn!("record {}: it describes another image; ignored", path.display()),
                    Err(error) => leave_out(error),
                },
                Some(("layer", chain)) => match decode::<LayerRecord>(&path) {
                    Ok(layer) => all.layers.push((chain, layer)),
                    Err(error) => leave_out(error),
                },
                _ => {}
            }
        }
        all.names = names.into_iter().map(|(name, (_, id))| (name, id)).collect();
        Ok((all, complete))
    }

    /// Changes the files to describe what the index lists. After a crash they may describe more, or an older state.
    pub(crate) fn reconcile(&self, index: &IndexContents) -> Result<(), Error> {
        let (known, _) = self.read()?;
        let mut changed = false;
        let mut names: HashMap<&Digest, Vec<String>> = HashMap::new();
        index.names.iter().for_each(|(name, id)| names.entry(id).or_default().push(name.clone()));
        let mut known_names: HashMap<&Digest, Vec<String>> = HashMap::new();
        known.names.iter().for_each(|(name, id)| known_names.entry(id).or_default().push(name.clone()));
        let known_images: HashMap<&Digest, &ImageRecord> =
            known.images.iter().map(|image| (&image.id, image)).collect();
        for image in &index.images {
            let same = known_images.get(&image.id).is_some_and(|known| **known == *image)
                && names.get(&image.id) == known_names.get(&image.id);
            if !same {
                self.put_image(image, names.get(&image.id).cloned().unwrap_or_default())?;
                changed = true;
            }
        }
        let known_layers: HashMap<&Digest, &LayerRecord> =
            known.layers.iter().map(|(chain, layer)| (chain, layer)).collect();
        for (chain, layer) in &index.layers {
            if known_layers.get(chain).is_none_or(|known| *known != layer) {
                self.put_layer(chain, layer)?;
                changed = true;
            }
        }
        changed |= self.remove_others(index)?;
        if changed { self.sync() } else { Ok(()) }
    }

    fn remove_others(&self, index: &IndexContents) -> Result<bool, Error> {
        let images: HashSet<&Digest> = index.images.iter().map(|image| &image.id).collect();
        let layers: HashSet<&Digest> = index.layers.iter().map(|(chain, _)| chain).collect();
        let mut changed = false;
        for entry in fs::read_dir(&self.dir).map_err(failed_to("list", &self.dir))? {
            let path = entry.map_err(failed_to("list", &self.dir))?.path();
            let listed = match parse_name(&path) {
                Some(("image", id)) => images.contains(&id),
                Some(("layer", chain)) => layers.contains(&chain),
                _ => false,
            };
            if !listed {
                remove(&path)?;
                changed = true;
            }
        }
        Ok(changed)
    }
}

fn parse_name(path: &Path) -> Option<(&str, Digest)> {
    let (kind, hex) = path.file_name()?.to_str()?.split_once('-')?;
    Some((kind, Digest::from_hex(hex).ok()?))
}

fn encode(record: &impl Serialize) -> Result<Vec<u8>, Error> {
    let text = serde_json::to_vec(record).map_err(|cause| Error::system(format!("encode a record: {cause}")))?;
    Ok([Digest::of(&text).as_str().as_bytes(), b"\n", &text].concat())
}

fn decode<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(failed_to("open", path))?;
    file.take(SIZE_MAX).read_to_end(&mut bytes).map_err(failed_to("read", path))?;
    let damaged = || Error::corrupt(format!("record {}: it is damaged", path.display()));
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)?;
    let (digest, text) = (&bytes[..end], &bytes[end + 1..]);
    if digest != Digest::of(text).as_str().as_bytes() {
        return Err(damaged());
    }
    serde_json::from_slice(text).map_err(|cause| Error::corrupt(format!("record {}: {cause}", path.display())))
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => Err(failed_to("remove", path)(cause)),
        _ => Ok(()),
    }
}
