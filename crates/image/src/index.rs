//! The index of the store: names, images and layers, in one transactional file (redb).
//!
//! A record is written only after what it describes is on disk. Blobs need no records: the name of a blob is its
//! checksum.

use std::{
    collections::BTreeSet,
    fs,
    io::ErrorKind,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use rustix::io::Errno;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Digest, DiskFormat, Error, durable, error::failed_to, hooks, image::Usage, reserve::Reserve};

const META: TableDefinition<&str, &str> = TableDefinition::new("meta");
const NAMES: TableDefinition<&str, &str> = TableDefinition::new("names");
const IMAGES: TableDefinition<&str, &[u8]> = TableDefinition::new("images");
const LAYERS: TableDefinition<&str, &[u8]> = TableDefinition::new("layers");

/// Memory for cached pages, in bytes. Everything that is read often is in the state of the store.
const CACHE: usize = 2 * 1024 * 1024;

/// An image and its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImageRecord {
    /// Digest of the configuration, which is the image's id.
    pub(crate) id: Digest,
    /// Digest of the manifest that was pulled last.
    pub(crate) manifest: Digest,
    pub(crate) layers: Vec<LayerRef>,
    /// All blobs that this image needs, including the image index through which it was found.
    pub(crate) blobs: BTreeSet<Digest>,
    pub(crate) size: u64,
    /// Whether a layer is missing. The image is hidden until the layer is unpacked from its blob again or a pull
    /// completes it.
    #[serde(default)]
    pub(crate) incomplete: bool,
    /// Annotations of the manifest that decide what runs the image.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub(crate) annotations: std::collections::BTreeMap<String, String>,
}

/// A layer of an image's manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerRef {
    pub(crate) blob: Digest,
    pub(crate) size: u64,
    pub(crate) media_type: String,
    pub(crate) diff_id: Digest,
    /// Chain id, which is the name of the unpacked layer.
    pub(crate) chain: Digest,
}

/// The format of an unpacked layer on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Form {
    /// A directory, `layers/<chain>`.
    Directory,
}

/// An unpacked layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerRecord {
    pub(crate) parent: Option<Digest>,
    pub(crate) form: Form,
    pub(crate) usage: Usage,
    /// Sum of the sizes of its files, in bytes.
    pub(crate) length: u64,
    /// Digest of its uncompressed archive, from which, with `parent`, its chain id is computed. Older records lack it.
    #[serde(default)]
    pub(crate) diff_id: Option<Digest>,
    /// [`crate::tree_digest`] of its directory. Older records lack it, and those of layers that were found without a
    /// record.
    #[serde(default)]
    pub(crate) digest: Option<String>,
    /// Whether its files differ from `digest`. Images that have it are hidden until it is unpacked again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) damaged: bool,
}

/// The contents of the index, as read when the store is opened.
#[derive(Default)]
pub(crate) struct IndexContents {
    pub(crate) names: Vec<(String, Digest)>,
    pub(crate) images: Vec<ImageRecord>,
    pub(crate) layers: Vec<(Digest, LayerRecord)>,
    /// Boot id of the last opening; absent until a recovery wrote everything that it found.
    pub(crate) boot: Option<String>,
    /// Whether the store was closed since.
    pub(crate) closed: bool,
    /// Whether layers and blobs must be verified against their digests.
    pub(crate) verify: bool,
}

impl IndexContents {
    /// Returns the change that fills an empty index with these contents.
    pub(crate) fn into_change(self) -> Change {
        let text = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let mut meta = vec![("closed", text(self.closed)), ("verify", text(self.verify))];
        meta.extend(self.boot.map(|boot| ("boot", boot)));
        Change { put_names: self.names, put_images: self.images, put_layers: self.layers, meta, ..Change::default() }
    }
}

/// The changes of one transaction.
#[derive(Clone, Default)]
pub(crate) struct Change {
    pub(crate) put_names: Vec<(String, Digest)>,
    pub(crate) drop_names: Vec<String>,
    pub(crate) put_images: Vec<ImageRecord>,
    pub(crate) drop_images: Vec<Digest>,
    pub(crate) put_layers: Vec<(Digest, LayerRecord)>,
    pub(crate) drop_layers: Vec<Digest>,
    pub(crate) meta: Vec<(&'static str, String)>,
}

impl Change {
    /// Whether names, images or layers change.
    pub(crate) fn lists_differently(&self) -> bool {
        let removes = !(self.drop_names.is_empty() && self.drop_images.is_empty() && self.drop_layers.is_empty());
        removes || !self.only_removes()
    }

    /// Whether this only removes entries, so that it may use the reserve of a full disk.
    pub(crate) fn only_removes(&self) -> bool {
        self.put_names.is_empty() && self.put_images.is_empty() && self.put_layers.is_empty()
    }
}

/// The open index file, which is written from scratch when redb refuses to write.
pub(crate) struct Index {
    path: PathBuf,
    /// `None` after an error: the file is written from scratch with the next change.
    db: Mutex<Option<Database>>,
}

/// The state in which [`Index::open`] found the index file.
pub(crate) enum IndexState {
    /// An intact index.
    Intact(IndexContents),
    /// No contents: the file was created now, or by a process that ended before it filled it.
    Missing,
    /// A damaged file, which was renamed, and the reason.
    Damaged(String),
}

/// Why an operation on the file failed.
enum Failure {
    /// The file is damaged and must be rebuilt.
    Damaged(String),
    /// The disk or quota is full (`ENOSPC`, `EDQUOT`).
    Full(Error),
    Other(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Damaged(reason) => Self::corrupt(format!("image index: {reason}")),
            Failure::Full(error) | Failure::Other(error) => error,
        }
    }
}

fn failed(cause: impl Into<redb::Error>) -> Failure {
    let cause = cause.into();
    let message = format!("image index: {cause}");
    match &cause {
        redb::Error::Io(io) => match io.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => Failure::Full(Error::system(message)),
            Some(Errno::IO | Errno::UCLEAN | Errno::BADMSG) | None => Failure::Damaged(cause.to_string()),
            Some(_) => Failure::Other(Error::system(message)),
        },
        redb::Error::DatabaseAlreadyOpen | redb::Error::PreviousIo => Failure::Other(Error::system(message)),
        _ => Failure::Damaged(cause.to_string()),
    }
}

impl Index {
    /// Opens the file, or creates it. A damaged file is renamed to `index.damaged` and replaced by an empty one.
    ///
    /// # Errors
    /// The file has a newer format, or cannot be opened for a reason other than its contents.
    pub(crate) fn open(path: &Path, reserve: &Reserve) -> Result<(Self, IndexState), Error> {
        let index = |db| Self { path: path.to_owned(), db: Mutex::new(Some(db)) };
        let mut opened = load(path);
        if matches!(opened, Err(Failure::Full(_))) && reserve.release() {
            opened = load(path);
        }
        if matches!(opened, Err(Failure::Damaged(_))) {
            // The disk may have failed only once.
            opened = load(path);
        }
        let reason = match opened {
            // Created and never filled: a process ended before it wrote its recovery, or could not write it.
            Ok((db, Some(all))) if all.boot.is_none() => return Ok((index(db), IndexState::Missing)),
            Ok((db, Some(all))) => return Ok((index(db), IndexState::Intact(all))),
            Ok((db, None)) => return Ok((index(db), IndexState::Missing)),
            Err(Failure::Damaged(reason)) => reason,
            Err(other) => return Err(other.into()),
        };
        let damaged = path.with_extension("damaged");
        fs::rename(path, &damaged).map_err(failed_to("rename the damaged image index", path))?;
        let (db, _) = load(path)?;
        Ok((index(db), IndexState::Damaged(reason)))
    }

    /// Applies a change in one transaction, which is on disk when this returns. After an I/O error redb refuses all
    /// writes, and pages that the kernel could not write are lost from its cache: then the file is written from
    /// scratch, with `contents`.
    ///
    /// # Errors
    /// The disk failed twice. It is unknown whether the change is on disk.
    pub(crate) fn apply(&self, change: &Change, contents: impl Fn() -> IndexContents) -> Result<(), Error> {
        let mut db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let first = match &*db {
            Some(open) => match catch_panic(|| write(open, change)) {
                Ok(()) => return Ok(()),
                Err(failure) => Some(Error::from(failure)),
            },
            None => None,
        };
        // redb must be closed before its file is replaced.
        *db = None;
        let rewritten = catch_panic(|| {
            self.recreate(contents().into_change()).and_then(|fresh| {
                write(&fresh, change)?;
                Ok(fresh)
            })
        });
        match (rewritten, first) {
            (Ok(fresh), first) => {
                if let Some(error) = first {
                    tracing::warn!("{error}; the index was written from scratch");
                }
                *db = Some(fresh);
                Ok(())
            }
            (Err(_), Some(error)) => Err(error),
            (Err(failure), None) => Err(failure.into()),
        }
    }

    /// Closes the file. redb writes to it for the last time.
    pub(crate) fn close(&self) {
        *self.db.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Writes a new file and renames it over the old one.
    fn recreate(&self, contents: Change) -> Result<Database, Failure> {
        let other = |error: Error| Failure::Other(error);
        let new = self.path.with_extension("new");
        match fs::remove_file(&new) {
            Err(cause) if cause.kind() != ErrorKind::NotFound => return Err(other(failed_to("remove", &new)(cause))),
            _ => {}
        }
        let (db, _) = load(&new)?;
        write(&db, &contents)?;
        drop(db);
        fs::rename(&new, &self.path).map_err(failed_to("rename to", &self.path)).map_err(other)?;
        durable::sync_directory(self.path.parent().unwrap_or(Path::new("/"))).map_err(other)?;
        Ok(load(&self.path)?.0)
    }
}

/// Runs `work` and turns a panic into an error: redb may panic on bytes that it did not write.
fn catch_panic<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Failure::Damaged("redb panicked while reading it".to_owned())))
}

/// Opens and checks a file. The contents are `None` if the file was created now or nothing was written to it yet.
fn load(path: &Path) -> Result<(Database, Option<IndexContents>), Failure> {
    catch_panic(|| {
        let mut db = Database::builder().set_cache_size(CACHE).create(path).map_err(|cause| match cause {
            redb::DatabaseError::DatabaseAlreadyOpen => Failure::Other(busy(path)),
            cause => failed(cause),
        })?;
        // This is the only place where redb verifies the checksums of pages.
        db.check_integrity().map_err(failed)?;
        let known = prepare(&db, path)?;
        let all = if known { Some(read(&db)?) } else { None };
        Ok((db, all))
    })
}

/// Returns the error for a store that another process has open.
pub(crate) fn busy(path: &Path) -> Error {
    Error::system(format!("open {}: another process has this image store open; stop it first", path.display()))
}

/// Creates the tables. Returns whether they existed.
fn prepare(db: &Database, path: &Path) -> Result<bool, Failure> {
    let write = db.begin_write().map_err(failed)?;
    let known = {
        let mut meta = write.open_table(META).map_err(failed)?;
        let format = meta.get("format").map_err(failed)?.map(|value| value.value().to_owned());
        let current = DiskFormat::CURRENT.index;
        match format.as_deref().map(|text| (text, text.parse::<u32>())) {
            Some((_, Ok(known))) if known == current => {}
            // Records of version 1 are read unchanged.
            None | Some((_, Ok(1))) => drop(meta.insert("format", current.to_string().as_str()).map_err(failed)?),
            Some((other, _)) => {
                return Err(Failure::Other(Error::invalid(format!(
                    "open image index {}: format {other} is not supported (only 1 to {current}); use the program that \
                     wrote it",
                    path.display()
                ))));
            }
        }
        write.open_table(NAMES).map_err(failed)?;
        write.open_table(IMAGES).map_err(failed)?;
        write.open_table(LAYERS).map_err(failed)?;
        format.is_some()
    };
    write.commit().map_err(failed)?;
    hooks::reached("index prepared");
    Ok(known)
}

fn read(db: &Database) -> Result<IndexContents, Failure> {
    let damaged = |error: Error| Failure::Damaged(error.message);
    let read = db.begin_read().map_err(failed)?;
    let mut all = IndexContents::default();
    for row in read.open_table(NAMES).map_err(failed)?.iter().map_err(failed)? {
        let (name, id) = row.map_err(failed)?;
        all.names.push((name.value().to_owned(), id.value().parse().map_err(damaged)?));
    }
    for row in read.open_table(IMAGES).map_err(failed)?.iter().map_err(failed)? {
        let (id, record) = row.map_err(failed)?;
        all.images.push(decode("image", id.value(), record.value()).map_err(damaged)?);
    }
    for row in read.open_table(LAYERS).map_err(failed)?.iter().map_err(failed)? {
        let (chain, record) = row.map_err(failed)?;
        let layer = decode("layer", chain.value(), record.value()).map_err(damaged)?;
        all.layers.push((chain.value().parse().map_err(damaged)?, layer));
    }
    let meta = read.open_table(META).map_err(failed)?;
    let get = |key: &str| Ok::<_, Failure>(meta.get(key).map_err(failed)?.map(|value| value.value().to_owned()));
    all.boot = get("boot")?;
    all.closed = get("closed")?.as_deref() == Some("yes");
    all.verify = get("verify")?.as_deref() == Some("yes");
    Ok(all)
}

fn write(db: &Database, change: &Change) -> Result<(), Failure> {
    let other = Failure::Other;
    let write = db.begin_write().map_err(failed)?;
    {
        let mut names = write.open_table(NAMES).map_err(failed)?;
        for name in &change.drop_names {
            names.remove(name.as_str()).map_err(failed)?;
        }
        for (name, id) in &change.put_names {
            names.insert(name.as_str(), id.as_str()).map_err(failed)?;
        }
        let mut images = write.open_table(IMAGES).map_err(failed)?;
        for id in &change.drop_images {
            images.remove(id.as_str()).map_err(failed)?;
        }
        for image in &change.put_images {
            images.insert(image.id.as_str(), encode(image).map_err(other)?.as_slice()).map_err(failed)?;
        }
        let mut layers = write.open_table(LAYERS).map_err(failed)?;
        for chain in &change.drop_layers {
            layers.remove(chain.as_str()).map_err(failed)?;
        }
        for (chain, layer) in &change.put_layers {
            layers.insert(chain.as_str(), encode(layer).map_err(other)?.as_slice()).map_err(failed)?;
        }
        let mut meta = write.open_table(META).map_err(failed)?;
        for (key, value) in &change.meta {
            meta.insert(*key, value.as_str()).map_err(failed)?;
        }
    }
    hooks::reached("index written");
    write.commit().map_err(failed)?;
    hooks::reached("index committed");
    Ok(())
}

fn encode(record: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(record).map_err(|cause| Error::system(format!("image index: encode a record: {cause}")))
}

fn decode<T: DeserializeOwned>(kind: &str, key: &str, bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|cause| Error::corrupt(format!("decode record of {kind} {key}: {cause}")))
}
