//! The files of an archive, extracted to temporary files and digested at the same time.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    Digest, Error,
    digest::Hasher,
    error::failed_to,
    store::Inner,
    trash::Trash,
    unpack::{self, ArchiveEntry},
};

/// Most files of one archive.
const FILES_MAX: usize = 100_000;
/// Most bytes of the names and links of one archive, which are kept in memory.
const NAMES_MAX: usize = 16 * 1024 * 1024;
/// Largest JSON file of an archive, in bytes.
pub(super) const JSON_MAX: u64 = 8 * 1024 * 1024;
/// Symlinks followed to a layer (old `docker save` links equal layers).
const LINKS_MAX: usize = 8;

/// One extracted file.
#[derive(Clone, Debug)]
pub(super) struct ArchiveFile {
    pub(super) path: PathBuf,
    pub(super) digest: Digest,
    pub(super) size: u64,
}

/// All files of an archive. Those that were not moved to the content store are deleted when this value is dropped.
pub(super) struct ArchiveFiles {
    files: HashMap<Vec<u8>, ArchiveFile>,
    by_digest: HashMap<Digest, ArchiveFile>,
    links: HashMap<Vec<u8>, Vec<u8>>,
    /// Bytes of all names and links.
    names: usize,
    bytes: u64,
    limit: u64,
    trash: Arc<Trash>,
}

impl Drop for ArchiveFiles {
    fn drop(&mut self) {
        for archive_file in self.files.values() {
            // Files that were moved to the content store no longer exist at this path.
            self.trash.delete_later(archive_file.path.clone());
        }
    }
}

impl ArchiveFiles {
    fn new(store: &Inner) -> Self {
        let limit = store.limits().bytes;
        Self {
            files: HashMap::new(),
            by_digest: HashMap::new(),
            links: HashMap::new(),
            names: 0,
            bytes: 0,
            limit,
            trash: store.trash.clone(),
        }
    }

    /// Extracts a tar archive, which may be compressed.
    pub(super) fn from_tar(store: &Inner, source: impl Read + Send) -> Result<Self, Error> {
        let mut all = Self::new(store);
        let limit = all.limit;
        unpack::each_file(source, limit, |name, archived| match archived {
            ArchiveEntry::Link(target) => {
                all.check_count(name.len() + target.len())?;
                all.links.insert(name, target);
                Ok(())
            }
            ArchiveEntry::File(body) => all.add(store, name, body),
        })?;
        Ok(all)
    }

    /// Copies the files of an OCI layout in a directory.
    pub(super) fn from_directory(store: &Inner, dir: &Path) -> Result<Self, Error> {
        let mut all = Self::new(store);
        let mut add = |name: String| {
            let path = dir.join(&name);
            let file = File::open(&path).map_err(failed_to("open", &path))?;
            match file.metadata().map_err(failed_to("read", &path))?.is_file() {
                true => all.add(store, name.into_bytes(), &mut &file),
                false => Err(Error::invalid(format!("{}: not a file", path.display()))),
            }
        };
        add("oci-layout".into())?;
        add("index.json".into())?;
        let blobs = dir.join("blobs/sha256");
        for entry in fs::read_dir(&blobs).map_err(failed_to("list", &blobs))? {
            let name = entry.map_err(failed_to("list", &blobs))?.file_name();
            add(format!("blobs/sha256/{}", name.to_string_lossy()))?;
        }
        Ok(all)
    }

    /// Checks the limits on what is kept in memory, before another name is added.
    fn check_count(&mut self, name: usize) -> Result<(), Error> {
        self.names += name;
        if self.files.len() + self.links.len() >= FILES_MAX {
            return Err(Error::invalid(format!("more than {FILES_MAX} files in the archive")));
        }
        match self.names > NAMES_MAX {
            true => Err(Error::invalid(format!("the names in the archive take more than {NAMES_MAX} bytes"))),
            false => Ok(()),
        }
    }

    fn add(&mut self, store: &Inner, name: Vec<u8>, body: &mut dyn Read) -> Result<(), Error> {
        self.check_count(name.len())?;
        let path = store.content.temporary("import");
        let mut file = File::create_new(&path).map_err(failed_to("create", &path))?;
        let mut archive_file = ArchiveFile { path: path.clone(), digest: Digest::of(b""), size: 0 };
        // Listed before it is written, so that it is deleted after any failure.
        if let Some(old) = self.files.insert(name.clone(), archive_file.clone()) {
            let _ = fs::remove_file(&old.path);
        }
        let mut hasher = Hasher::new();
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let count = body.read(&mut buffer).map_err(|cause| Error::corrupt(format!("read the archive: {cause}")))?;
            if count == 0 {
                break;
            }
            archive_file.size += count as u64;
            self.bytes += count as u64;
            if self.bytes > self.limit {
                return Err(Error::invalid(format!("the archive is larger than {} bytes", self.limit)));
            }
            file.write_all(&buffer[..count]).map_err(failed_to("write", &path))?;
            hasher.update(&buffer[..count]);
        }
        archive_file.digest = hasher.finish();
        self.by_digest.insert(archive_file.digest.clone(), archive_file.clone());
        self.files.insert(name, archive_file);
        Ok(())
    }

    /// Finds a file by its name, following the links of the archive.
    pub(super) fn file(&self, name: &str) -> Result<&ArchiveFile, Error> {
        let mut at = unpack::normalize(name.as_bytes())?;
        for _ in 0..LINKS_MAX {
            if let Some(archive_file) = self.files.get(&at) {
                return Ok(archive_file);
            }
            let Some(target) = self.links.get(&at) else { break };
            let directory = &at[..at.iter().rposition(|b| *b == b'/').unwrap_or(0)];
            at = unpack::normalize(&[directory, b"/", target].concat())?;
        }
        Err(Error::not_found(format!("the archive has no file {name:?}")))
    }

    /// Finds a blob by its digest, whatever its name in the archive.
    pub(super) fn blob(&self, digest: &Digest) -> Option<&ArchiveFile> {
        self.by_digest.get(digest)
    }

    pub(super) fn json(&self, archive_file: &ArchiveFile) -> Result<Vec<u8>, Error> {
        if archive_file.size > JSON_MAX {
            return Err(Error::invalid(format!(
                "JSON file of {} bytes: at most {JSON_MAX} are accepted",
                archive_file.size
            )));
        }
        fs::read(&archive_file.path).map_err(failed_to("read", &archive_file.path))
    }

    /// Reads a JSON file that may have been moved to the content store for an earlier image of the archive.
    pub(super) fn json_or_stored(&self, store: &Inner, archive_file: &ArchiveFile) -> Result<Vec<u8>, Error> {
        match archive_file.path.exists() {
            true => self.json(archive_file),
            false => store.content.get(&archive_file.digest, JSON_MAX),
        }
    }

    /// Moves a file to the content store, unless this was done for an earlier image of the archive.
    pub(super) fn move_to_content(&self, store: &Inner, archive_file: &ArchiveFile) -> Result<(), Error> {
        // An existing blob is replaced, because it may be damaged.
        match archive_file.path.exists() {
            true => store.content.accept(&archive_file.path, &archive_file.digest),
            false if store.content.present(&archive_file.digest) == Some(archive_file.size) => Ok(()),
            false => Err(Error::not_found(format!("blob {} is missing from the store", archive_file.digest))),
        }
    }
}
