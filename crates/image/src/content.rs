//! The content store: blobs by digest, in an OCI image layout (`oci-layout`, `blobs/sha256/<hex>`).
//!
//! A blob gets its name only after its bytes were verified. References between blobs are in the index of the store; the
//! layout's `index.json` is written on export only.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{Digest, Error, durable, error::failed_to, hooks};

/// The content store. All of its state is on disk.
#[derive(Debug)]
pub(crate) struct Content {
    blobs: PathBuf,
    /// Directory for files that are being written, on the same file system. Files that an earlier process left there
    /// are deleted in the background.
    temporary: PathBuf,
    /// Time of the opening in nanoseconds. It is part of temporary names, so that none equals one that an earlier
    /// process left.
    opened: u128,
    counter: AtomicU64,
    /// Held while a blob is removed, and while an operation that leased it checks whether it exists.
    removal: Mutex<()>,
}

impl Content {
    pub(crate) fn open(dir: &Path, temporary: &Path) -> Result<Self, Error> {
        let blobs = dir.join("blobs/sha256");
        fs::create_dir_all(&blobs).map_err(failed_to("create", &blobs))?;
        let layout = dir.join("oci-layout");
        if !layout.exists() {
            durable::replace(&layout, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        }
        let opened = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        Ok(Self { blobs, temporary: temporary.to_owned(), opened, counter: AtomicU64::new(0), removal: Mutex::new(()) })
    }

    pub(crate) fn path(&self, digest: &Digest) -> PathBuf {
        self.blobs.join(digest.hex())
    }

    /// Returns the size of a blob, if it exists.
    pub(crate) fn size(&self, digest: &Digest) -> Option<u64> {
        fs::metadata(self.path(digest)).ok().map(|meta| meta.len())
    }

    /// Returns the size of a blob that the caller leased, if it exists. Waits for a removal that started before the
    /// lease, so that a blob that exists now stays as long as the lease. Blocks.
    pub(crate) fn present(&self, digest: &Digest) -> Option<u64> {
        let _removal = self.removal.lock().unwrap_or_else(PoisonError::into_inner);
        self.size(digest)
    }

    /// Returns a new path for a temporary file.
    pub(crate) fn temporary(&self, kind: &str) -> PathBuf {
        self.temporary.join(format!("{kind}-{:x}-{}", self.opened, self.counter.fetch_add(1, Ordering::Relaxed)))
    }

    /// Renames a file whose digest was verified to the name of the blob. If it replaces a blob (a damaged one, or one
    /// of a listed image), the file is synced first: a file system may write the new name to disk before the bytes.
    pub(crate) fn accept(&self, file: &Path, digest: &Digest) -> Result<(), Error> {
        if self.size(digest).is_some() {
            let synced = File::open(file).and_then(|file| file.sync_all());
            synced.map_err(failed_to("write to disk (fsync)", file))?;
        }
        let renamed = fs::rename(file, self.path(digest)).map_err(failed_to("rename to the content store", file));
        hooks::reached("blob renamed");
        renamed
    }

    /// Stores a small blob, unless it exists undamaged.
    pub(crate) fn put(&self, bytes: &[u8]) -> Result<Digest, Error> {
        let digest = Digest::of(bytes);
        let _ = self.present(&digest);
        // An existing blob of the same length may be damaged, so its digest is checked.
        if self.get(&digest, bytes.len() as u64).is_ok() {
            return Ok(digest);
        }
        let path = self.temporary("blob");
        let written = File::create_new(&path).and_then(|mut file| file.write_all(bytes));
        let stored = written.map_err(failed_to("write", &path)).and_then(|()| self.accept(&path, &digest));
        // Otherwise the temporary file would stay until the next start.
        stored.inspect_err(|_| drop(fs::remove_file(&path)))?;
        Ok(digest)
    }

    /// Reads a blob of at most `most` bytes and verifies its digest.
    pub(crate) fn get(&self, digest: &Digest, most: u64) -> Result<Vec<u8>, Error> {
        let path = self.path(digest);
        let file = File::open(&path).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::NotFound => Error::not_found(format!("blob {digest} is not in the store")),
            _ => failed_to("open", &path)(cause),
        })?;
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).map_err(failed_to("read", &path))?;
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

    /// Lists all blobs.
    pub(crate) fn list(&self) -> Result<HashSet<Digest>, Error> {
        let entries = fs::read_dir(&self.blobs).map_err(failed_to("list", &self.blobs))?;
        let mut blobs = HashSet::new();
        for entry in entries {
            let name = entry.map_err(failed_to("list", &self.blobs))?.file_name();
            blobs.extend(name.to_str().and_then(|name| Digest::from_hex(name).ok()));
        }
        Ok(blobs)
    }

    /// Removes a blob unless `needed` returns true. Succeeds if the blob does not exist.
    pub(crate) fn remove_unless(&self, digest: &Digest, needed: impl FnOnce() -> bool) -> Result<(), Error> {
        let _removal = self.removal.lock().unwrap_or_else(PoisonError::into_inner);
        if needed() { Ok(()) } else { self.remove(digest) }
    }

    /// Removes a blob whose bytes do not match its digest.
    pub(crate) fn discard_damaged(&self, digest: &Digest) -> Result<(), Error> {
        let _removal = self.removal.lock().unwrap_or_else(PoisonError::into_inner);
        self.remove(digest)
    }

    /// Removes a blob. The caller holds `removal`.
    fn remove(&self, digest: &Digest) -> Result<(), Error> {
        let path = self.path(digest);
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => Err(failed_to("remove", &path)(cause)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_that_could_not_be_stored_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let temporary = dir.path().join("tmp");
        fs::create_dir(&temporary).expect("a directory");
        let content = Content::open(dir.path(), &temporary).expect("a content store");
        fs::remove_dir_all(dir.path().join("blobs")).expect("no place for blobs");
        content.put(b"bytes").expect_err("nowhere to store it");
        assert_eq!(fs::read_dir(&temporary).expect("a directory").count(), 0);
    }
}
