//! The index of the store: names, images and layers, in one transactional file (redb).
//!
//! A record is written only after what it speaks of is on disk. Blobs need no records: their name is their check.

use std::{collections::BTreeSet, path::Path};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Digest, Error, ErrorKind, error::at, image::Usage};

const META: TableDefinition<&str, &str> = TableDefinition::new("meta");
const NAMES: TableDefinition<&str, &str> = TableDefinition::new("names");
const IMAGES: TableDefinition<&str, &[u8]> = TableDefinition::new("images");
const LAYERS: TableDefinition<&str, &[u8]> = TableDefinition::new("layers");

/// Version of the tables and records.
const FORMAT: &str = "1";
/// Memory for pages; all that is read often is held in the store's own state.
const CACHE: usize = 2 * 1024 * 1024;

/// An image: what it is made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ImageRecord {
    /// Digest of the configuration: the image's id.
    pub(crate) id: Digest,
    /// The manifest that was pulled last.
    pub(crate) manifest: Digest,
    pub(crate) layers: Vec<LayerRef>,
    /// Everything of the content store that this image needs: also the index it came through.
    pub(crate) blobs: BTreeSet<Digest>,
    pub(crate) size: u64,
    /// Found with a layer missing: not shown, but what is left of it is kept for the pull that makes it whole again.
    #[serde(default)]
    pub(crate) incomplete: bool,
}

/// A layer of an image's manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerRef {
    pub(crate) blob: Digest,
    pub(crate) size: u64,
    pub(crate) media_type: String,
    pub(crate) diff_id: Digest,
    /// Name of the unpacked layer.
    pub(crate) chain: Digest,
}

/// How an unpacked layer lies on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Form {
    /// A folder, `layers/<chain>`.
    Directory,
}

/// An unpacked layer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LayerRecord {
    pub(crate) parent: Option<Digest>,
    pub(crate) form: Form,
    pub(crate) usage: Usage,
    /// Sum of the sizes of its files, which a crash may shorten.
    pub(crate) length: u64,
}

/// Everything, as read when the store is opened.
#[derive(Default)]
pub(crate) struct Everything {
    pub(crate) names: Vec<(String, Digest)>,
    pub(crate) images: Vec<ImageRecord>,
    pub(crate) layers: Vec<(Digest, LayerRecord)>,
    /// Boot id of the last opening, and whether the store was closed since.
    pub(crate) boot: Option<String>,
    pub(crate) closed: bool,
}

/// What one transaction changes.
#[derive(Default)]
pub(crate) struct Change {
    pub(crate) put_names: Vec<(String, Digest)>,
    pub(crate) drop_names: Vec<String>,
    pub(crate) put_images: Vec<ImageRecord>,
    pub(crate) drop_images: Vec<Digest>,
    pub(crate) put_layers: Vec<(Digest, LayerRecord)>,
    pub(crate) drop_layers: Vec<Digest>,
    pub(crate) meta: Vec<(&'static str, String)>,
}

/// The open file. A second process that opens it gets an error.
pub(crate) struct Index {
    db: Database,
}

fn failed(cause: impl Into<redb::Error>) -> Error {
    Error::system(format!("image index: {}", cause.into()))
}

impl Index {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let db = Database::builder().set_cache_size(CACHE).create(path).map_err(|cause| match cause {
            redb::DatabaseError::DatabaseAlreadyOpen => Error::system(format!(
                "open {}: another process has this image store open; end it first",
                path.display()
            )),
            cause => at("open the image index", path)(cause),
        })?;
        let write = db.begin_write().map_err(failed)?;
        {
            let mut meta = write.open_table(META).map_err(failed)?;
            let found = meta.get("format").map_err(failed)?.map(|value| value.value().to_owned());
            match found.as_deref() {
                Some(FORMAT) => {}
                None => drop(meta.insert("format", FORMAT).map_err(failed)?),
                Some(other) => {
                    return Err(Error::invalid(format!(
                        "image index {}: its format is {other}, this program knows {FORMAT}; use the program that wrote it",
                        path.display()
                    )));
                }
            }
            write.open_table(NAMES).map_err(failed)?;
            write.open_table(IMAGES).map_err(failed)?;
            write.open_table(LAYERS).map_err(failed)?;
        }
        write.commit().map_err(failed)?;
        Ok(Self { db })
    }

    pub(crate) fn read(&self) -> Result<Everything, Error> {
        let read = self.db.begin_read().map_err(failed)?;
        let mut all = Everything::default();
        for row in read.open_table(NAMES).map_err(failed)?.iter().map_err(failed)? {
            let (name, id) = row.map_err(failed)?;
            all.names.push((name.value().to_owned(), id.value().parse()?));
        }
        for row in read.open_table(IMAGES).map_err(failed)?.iter().map_err(failed)? {
            let (id, record) = row.map_err(failed)?;
            all.images.push(decode("image", id.value(), record.value())?);
        }
        for row in read.open_table(LAYERS).map_err(failed)?.iter().map_err(failed)? {
            let (chain, record) = row.map_err(failed)?;
            all.layers.push((chain.value().parse()?, decode("layer", chain.value(), record.value())?));
        }
        let meta = read.open_table(META).map_err(failed)?;
        let get = |key: &str| Ok::<_, Error>(meta.get(key).map_err(failed)?.map(|value| value.value().to_owned()));
        all.boot = get("boot")?;
        all.closed = get("closed")?.as_deref() == Some("yes");
        Ok(all)
    }

    /// One transaction, on disk when this returns.
    pub(crate) fn apply(&self, change: &Change) -> Result<(), Error> {
        let write = self.db.begin_write().map_err(failed)?;
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
                images.insert(image.id.as_str(), encode(image)?.as_slice()).map_err(failed)?;
            }
            let mut layers = write.open_table(LAYERS).map_err(failed)?;
            for chain in &change.drop_layers {
                layers.remove(chain.as_str()).map_err(failed)?;
            }
            for (chain, layer) in &change.put_layers {
                layers.insert(chain.as_str(), encode(layer)?.as_slice()).map_err(failed)?;
            }
            let mut meta = write.open_table(META).map_err(failed)?;
            for (key, value) in &change.meta {
                meta.insert(*key, value.as_str()).map_err(failed)?;
            }
        }
        write.commit().map_err(failed)
    }
}

fn encode(record: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(record).map_err(|cause| Error::system(format!("image index: encode a record: {cause}")))
}

fn decode<T: DeserializeOwned>(what: &str, key: &str, bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes)
        .map_err(|cause| Error::new(ErrorKind::Corrupt, format!("image index: record of {what} {key}: {cause}")))
}
