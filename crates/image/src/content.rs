//! Blobs by digest, as an OCI image layout: `oci-layout`, `blobs/sha256/<hex>`.
//!
//! A blob has its name only when its bytes were verified. What refers to what is the index's business; the layout's
//! `index.json` is written on export.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{Digest, Error, error::at};

/// The content store. Cheap to share; all of its state is on disk.
#[derive(Debug)]
pub(crate) struct Content {
    blobs: PathBuf,
    /// For files on their way in; same file system. Emptied when the store is opened.
    temporary: PathBuf,
    counter: AtomicU64,
}

impl Content {
    pub(crate) fn open(dir: &Path, temporary: &Path) -> Result<Self, Error> {
        let blobs = dir.join("blobs/sha256");
        fs::create_dir_all(&blobs).map_err(at("create", &blobs))?;
        let layout = dir.join("oci-layout");
        if !layout.exists() {
            fs::write(&layout, r#"{"imageLayoutVersion":"1.0.0"}"#).map_err(at("write", &layout))?;
        }
        Ok(Self { blobs, temporary: temporary.to_owned(), counter: AtomicU64::new(0) })
    }

    pub(crate) fn path(&self, digest: &Digest) -> PathBuf {
        self.blobs.join(digest.hex())
    }

    /// Size of a blob that is here.
    pub(crate) fn size(&self, digest: &Digest) -> Option<u64> {
        fs::metadata(self.path(digest)).ok().map(|meta| meta.len())
    }

    /// A fresh path for something on its way in.
    pub(crate) fn temporary(&self, kind: &str) -> PathBuf {
        self.temporary.join(format!("{kind}-{}", self.counter.fetch_add(1, Ordering::Relaxed)))
    }

    /// Gives verified bytes their name.
    pub(crate) fn accept(&self, file: &Path, digest: &Digest) -> Result<(), Error> {
        fs::rename(file, self.path(digest)).map_err(at("rename to the content store", file))
    }

    /// Stores a small blob.
    pub(crate) fn put(&self, bytes: &[u8]) -> Result<Digest, Error> {
        let digest = Digest::of(bytes);
        if self.size(&digest) == Some(bytes.len() as u64) {
            return Ok(digest);
        }
        let path = self.temporary("blob");
        let written = File::create_new(&path).and_then(|mut file| file.write_all(bytes));
        written.map_err(at("write", &path))?;
        self.accept(&path, &digest)?;
        Ok(digest)
    }

    /// Reads a small blob, verified.
    pub(crate) fn get(&self, digest: &Digest, most: u64) -> Result<Vec<u8>, Error> {
        let path = self.path(digest);
        let file = File::open(&path).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::NotFound => Error::not_found(format!("blob {digest} is not in the store")),
            _ => at("open", &path)(cause),
        })?;
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).map_err(at("read", &path))?;
        if bytes.len() as u64 > most {
            return Err(Error::invalid(format!("blob {digest} is larger than {most} bytes")));
        }
        match &Digest::of(&bytes) == digest {
            true => Ok(bytes),
            false => {
                Err(Error::corrupt(format!("blob {digest} is damaged on disk; remove the image and pull it again")))
            }
        }
    }

    /// All blobs that are here.
    pub(crate) fn list(&self) -> Result<HashSet<Digest>, Error> {
        let entries = fs::read_dir(&self.blobs).map_err(at("list", &self.blobs))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.filter_map(|name| Digest::from_hex(&name).ok()).collect())
    }

    /// Removes a blob; a missing one is fine.
    pub(crate) fn remove(&self, digest: &Digest) {
        // What can't be removed is no one's: the next collection tries again.
        let _ = fs::remove_file(self.path(digest));
    }
}
