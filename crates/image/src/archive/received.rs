//! The files of an archive, taken aside and digested as they pass.

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
    error::at,
    store::Inner,
    trash::Trash,
    unpack::{self, Archived},
};

/// Most files of one archive.
const FILES_MAX: usize = 100_000;
/// Most bytes of the names and links of one archive, which are kept in memory.
const NAMES_MAX: usize = 16 * 1024 * 1024;
/// Largest JSON file of an archive.
pub(super) const JSON_MAX: u64 = 8 * 1024 * 1024;
/// Symlinks followed to a layer (old `docker save` links equal layers).
const LINKS_MAX: usize = 8;

/// One file taken aside.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) digest: Digest,
    pub(super) size: u64,
}

/// All files of an archive; those that nobody kept are removed with this value.
pub(super) struct Received {
    files: HashMap<Vec<u8>, Part>,
    by_digest: HashMap<Digest, Part>,
    links: HashMap<Vec<u8>, Vec<u8>>,
    /// Of names and links.
    names: usize,
    bytes: u64,
    limit: u64,
    trash: Arc<Trash>,
}

impl Drop for Received {
    fn drop(&mut self) {
        for part in self.files.values() {
            // Those that were kept are gone from here.
            self.trash.leave(part.path.clone());
        }
    }
}

impl Received {
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

    /// Takes a tar (maybe compressed) apart.
    pub(super) fn from_tar(store: &Inner, source: impl Read + Send) -> Result<Self, Error> {
        let mut all = Self::new(store);
        let limit = all.limit;
        unpack::each_file(source, limit, |name, archived| match archived {
            Archived::Link(target) => {
                all.check_count(name.len() + target.len())?;
                all.links.insert(name, target);
                Ok(())
            }
            Archived::File(body) => all.take(store, name, body),
        })?;
        Ok(all)
    }

    /// Takes the files of an OCI layout's directory.
    pub(super) fn from_directory(store: &Inner, dir: &Path) -> Result<Self, Error> {
        let mut all = Self::new(store);
        let mut take = |name: String| {
            let path = dir.join(&name);
            let file = File::open(&path).map_err(at("open", &path))?;
            match file.metadata().map_err(at("read", &path))?.is_file() {
                true => all.take(store, name.into_bytes(), &mut &file),
                false => Err(Error::invalid(format!("{}: not a file", path.display()))),
            }
        };
        take("oci-layout".into())?;
        take("index.json".into())?;
        let blobs = dir.join("blobs/sha256");
        for entry in fs::read_dir(&blobs).map_err(at("list", &blobs))? {
            let name = entry.map_err(at("list", &blobs))?.file_name();
            take(format!("blobs/sha256/{}", name.to_string_lossy()))?;
        }
        Ok(all)
    }

    /// Bounds what is kept in memory, before one more name.
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

    fn take(&mut self, store: &Inner, name: Vec<u8>, body: &mut dyn Read) -> Result<(), Error> {
        self.check_count(name.len())?;
        let path = store.content.temporary("import");
        let mut file = File::create_new(&path).map_err(at("create", &path))?;
        let mut part = Part { path: path.clone(), digest: Digest::of(b""), size: 0 };
        // Listed at once, so that it is removed whatever happens.
        if let Some(old) = self.files.insert(name.clone(), part.clone()) {
            let _ = fs::remove_file(&old.path);
        }
        let mut hasher = Hasher::new();
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let count = body.read(&mut buffer).map_err(|cause| Error::corrupt(format!("read the archive: {cause}")))?;
            if count == 0 {
                break;
            }
            part.size += count as u64;
            self.bytes += count as u64;
            if self.bytes > self.limit {
                return Err(Error::invalid(format!("the archive is larger than {} bytes", self.limit)));
            }
            file.write_all(&buffer[..count]).map_err(at("write", &path))?;
            hasher.update(&buffer[..count]);
        }
        part.digest = hasher.finish();
        self.by_digest.insert(part.digest.clone(), part.clone());
        self.files.insert(name, part);
        Ok(())
    }

    /// A file by name, through the archive's own links.
    pub(super) fn file(&self, name: &str) -> Result<&Part, Error> {
        let mut at = unpack::normalize(name.as_bytes())?;
        for _ in 0..LINKS_MAX {
            if let Some(part) = self.files.get(&at) {
                return Ok(part);
            }
            let Some(target) = self.links.get(&at) else { break };
            let directory = &at[..at.iter().rposition(|b| *b == b'/').unwrap_or(0)];
            at = unpack::normalize(&[directory, b"/", target].concat())?;
        }
        Err(Error::not_found(format!("the archive has no file {name:?}")))
    }

    /// A blob by digest: its name in the archive is not what makes it so.
    pub(super) fn blob(&self, digest: &Digest) -> Option<&Part> {
        self.by_digest.get(digest)
    }

    pub(super) fn json(&self, part: &Part) -> Result<Vec<u8>, Error> {
        if part.size > JSON_MAX {
            return Err(Error::invalid(format!("a JSON file of {} bytes, at most {JSON_MAX} are accepted", part.size)));
        }
        fs::read(&part.path).map_err(at("read", &part.path))
    }

    /// As [`Self::json`], of a file that an earlier image of the archive may have moved to the content store.
    pub(super) fn json_or_kept(&self, store: &Inner, part: &Part) -> Result<Vec<u8>, Error> {
        match part.path.exists() {
            true => self.json(part),
            false => store.content.get(&part.digest, JSON_MAX),
        }
    }

    /// Moves a file to the content store. A second image may want it too.
    pub(super) fn keep(&self, store: &Inner, part: &Part) -> Result<(), Error> {
        // Also over one that is here: that may be damaged.
        match part.path.exists() {
            true => store.content.accept(&part.path, &part.digest),
            false if store.content.present(&part.digest) == Some(part.size) => Ok(()),
            false => Err(Error::not_found(format!("blob {} is gone from the store", part.digest))),
        }
    }
}
